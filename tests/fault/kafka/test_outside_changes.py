"""Changes in Kafka while a plan is at work, with a real broker: each cell of the table in docs/design/0035-migration.md
is followed, or refused before the fence by a sentence. One broker and one Penstock for all cells, a topic and a plan for each.
"""

import os
import signal
from contextlib import contextmanager

import pytest

from common.kafka.base import END, NewKafkaTopic, ProducerOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords, Partition
from tests.e2e.running import RunningPenstock
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

PARTITIONS = 2
RECORDS = 100
WAIT_S_MAX = 60.0
PLAN = "name: {0}\nrecipe: mirror\ncluster: main\ntopics: [{0}]\ngates: {{error_rate: 1}}\nlimits: {{fence_s: 30, soak_hours: 0}}\n"
WAY = ("start", "verify", "cut", "soak", "retire")


class Outside:
    """A broker and a Penstock; `plan` makes a topic and its plan, and the other methods change Kafka behind its back."""

    def __init__(self, folder) -> None:
        self.folder, self.brokers = folder, KafkaBrokers(folder / "kafka").start()
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        self.kafka = open_driver().admin(self.connection)
        self.penstock = RunningPenstock(folder / "data", "--no-console")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.start()

    def plan(self, name) -> None:
        self.create(name)
        self.write(name, RECORDS)
        file = self.folder / f"{name}.yaml"
        file.write_text(PLAN.format(name))
        self.penstock.run("migrate", "plan", str(file), "--accept", "lone-replica")

    def go_before(self, name, command) -> None:
        """Everything of the way that comes before the command."""
        for each in WAY[: WAY.index(command)]:
            self.penstock.run("migrate", each, name)
            if each == "start":
                until(lambda: self.status(name)["behind"] == 0, "the copy", WAIT_S_MAX)

    def refused(self, name, command, *options) -> str:
        """The sentence by which it is refused. It has set no fence."""
        done = self.penstock.call("migrate", command, name, *options)
        told = done.stderr.decode()
        assert done.returncode == 4, told
        assert " fence: " not in told
        return told

    def status(self, name):
        return self.penstock.run("migrate", "status", name)["topic_rows"][0]

    def create(self, name) -> None:
        assert self.kafka.create_topics({name: NewKafkaTopic(PARTITIONS, 1)}) == {}
        until(lambda: name in self.kafka.topics([name]), "the topic", WAIT_S_MAX)

    def delete(self, name) -> None:
        self.kafka.delete_topics([name])
        until(lambda: name not in self.kafka.topics([name]), "the end of the topic", WAIT_S_MAX)

    def write(self, name, count) -> None:
        """Plain records of a writer beside the proxies."""
        producer = open_driver().producer(self.connection, ProducerOptions())
        self._produce(producer, name, count)
        producer.close(10)

    def _produce(self, producer, name, count) -> None:
        producer.partitions(name)
        values = [b"%d" % number for number in range(count)]
        places = [number % PARTITIONS for number in range(count)]
        codes: list[int] = []
        records = OutgoingRecords([name] * count, places, [5] * count, values, values, [()] * count)
        producer.produce(records, lambda results: codes.extend(results.codes))
        assert producer.flush(30) and set(codes) == {0}

    @contextmanager
    def transaction(self, name):
        """An open transaction with a record in each partition; aborted at the end."""
        producer = open_driver().producer(self.connection, ProducerOptions(transactional_id=f"hanging-{name}"))
        producer.begin()
        self._produce(producer, name, PARTITIONS)
        yield
        producer.abort()
        producer.close(10)

    @contextmanager
    def bridge_stopped(self):
        pid = self.penstock.refresh()["pids"]["kafka_bridge"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def delete_records(self, name) -> None:
        """As retention does, up to the present end."""
        ends = self.kafka.offsets([Partition(name, number) for number in range(PARTITIONS)], END)
        rows = ",".join(f'{{"topic":"{name}","partition":{each.number},"offset":{at}}}' for each, at in ends.items())
        file = self.folder / f"{name}.json"
        file.write_text(f'{{"partitions":[{rows}],"version":1}}')
        self.brokers.tool(
            "org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server", self.brokers.bootstrap,
            "--offset-json-file", str(file),
        )  # fmt: skip

    def close(self) -> None:
        self.kafka.close()
        self.penstock.end()
        self.brokers.stop()


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    require(installed(), "a Kafka client")
    made = Outside(tmp_path_factory.mktemp("outside"))
    yield made
    made.close()


def made_again(outside, name):
    outside.delete(name)
    outside.create(name)
    outside.write(name, 60)  # fewer than were copied


def gone(outside, name):
    outside.delete(name)


def emptied(outside, name):
    """Retention deletes what no bridge has copied yet."""
    with outside.bridge_stopped():
        outside.write(name, PARTITIONS)  # these may be in the answer to a fetch that waits: the bridge still gets them
        outside.write(name, RECORDS)
        outside.delete_records(name)
        outside.write(name, 20)


def compacted(outside, name):
    outside.kafka.alter_configs(name, {"cleanup.policy": "compact"})
    until(lambda: outside.kafka.configs([name])[name]["cleanup.policy"] == "compact", "the policy", WAIT_S_MAX)


AGAIN = "deleted and made again"
CELLS = [
    ("verify", made_again, AGAIN),
    ("cut", made_again, AGAIN),
    ("rollback", made_again, f"{AGAIN} since the change of its sides"),
    ("retire", made_again, f"{AGAIN} since the change of its sides"),
    ("cut", gone, "it does not exist there, or its user may not see it"),
    ("verify", emptied, "are lost: go on by `penstock kafka accept"),
    ("cut", emptied, "are lost: go on by `penstock kafka accept"),
    ("start", compacted, "cleanup.policy is compact: the engine keeps every record"),
    ("verify", compacted, "cleanup.policy is compact: the engine keeps every record"),
    ("cut", compacted, "cleanup.policy is compact: the engine keeps every record"),
]
"""Command, the change before it, and a part of the sentence."""


@pytest.mark.parametrize(
    ("command", "change", "told"), CELLS, ids=lambda each: each if isinstance(each, str) else each.__name__
)
def test_a_change_in_kafka_is_refused_before_the_fence(outside, command, change, told):
    name = f"{change.__name__}_{command}"
    outside.plan(name)
    outside.go_before(name, "retire" if command == "rollback" else command)
    change(outside, name)
    assert told in outside.refused(name, command)
    if command != "start" and change is not compacted:
        assert any(told in each for each in outside.status(name)["notes"])


def test_an_open_transaction_is_refused_before_the_fence_and_the_cut_succeeds_after_it(outside):
    outside.plan("hanging")
    outside.go_before("hanging", "cut")
    with outside.transaction("hanging"):
        outside.write("hanging", 2)
        told = outside.refused("hanging", "cut")
        assert f"hanging partition 0: a transaction is open since offset {RECORDS // 2}" in told
        assert outside.status("hanging")["open_transactions"]
    outside.penstock.run("migrate", "cut", "hanging")
    assert outside.status("hanging")["open_transactions"] == 0


def test_records_after_the_cut_refuse_retire_also_while_no_bridge_runs(outside):
    outside.plan("late")
    outside.go_before("late", "retire")
    with outside.bridge_stopped():
        outside.write("late", 30)
        assert "came to Kafka after the cut and is not copied" in outside.refused("late", "retire")
    until(lambda: (row := outside.status("late"))["copied"] == row["kafka_end"], "the bridge copies them", WAIT_S_MAX)
    assert "records came to Kafka after the cut, and were copied into" in outside.refused("late", "retire")
    outside.penstock.run("migrate", "retire", "late", "--accept", "late")


def test_an_undisturbed_plan_retires(outside):
    """What the gates ask for is not there where nothing has changed."""
    outside.plan("calm")
    for command in WAY:
        outside.penstock.run("migrate", command, "calm")

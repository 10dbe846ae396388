"""One side's shape or positions change by another hand while a plan moves a topic: partitions are added in Kafka, the position
of a copy back is that of a topic that was deleted, or has expired. Real processes and a real broker.
"""

import json
import subprocess
import urllib.error
import urllib.request
from contextlib import closing

import pytest

from common.contract import Code, Message
from common.kafka.base import END, NewKafkaTopic, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords, Partition
from kafka_bridge.copy_out.positions import position_group
from tests.e2e.kafka.home import Sender
from tests.e2e.running import PENSTOCK, RunningPenstock
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

PLAN = """\
name: {topic}
recipe: {recipe}
order: {order}
cluster: main
topics: [{topic}]
gates: {{error_rate: 1}}
limits: {{fence_s: 60, soak_hours: 0}}
"""
FOLLOWED_S_MAX = 90.0
"""A producer of the bridge asks for partitions every 30 s."""


class Changing:
    """Brokers that others change, and a Penstock.

    Args:
        more: for the brokers, as one of `KafkaBrokers` has them.
    """

    def __init__(self, folder, **more) -> None:
        require(
            "confluent-kafka" in installed(), "pip install confluent-kafka"
        )  # it adds partitions, and deletes records
        from confluent_kafka.admin import AdminClient

        self.folder = folder
        self.brokers = KafkaBrokers(folder / "kafka", **more).start()
        self.connection = KafkaConnection("main", (*self.brokers.bootstrap.split(","),))
        self.hand = AdminClient({"bootstrap.servers": self.brokers.bootstrap})
        self.admin = open_driver().admin(self.connection)
        self.penstock = RunningPenstock(folder / "data", "--no-console")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"], pull=["*"])

    def plan(self, topic, recipe="mirror", partitions=1):
        """A topic in Kafka with some messages, and a plan that copies it."""
        self.create(topic, partitions)
        self.write_plan(topic, recipe)

    def create(self, topic, partitions=1):
        assert self.admin.create_topics({topic: NewKafkaTopic(partitions, 1)}) == {}
        until(lambda: self.admin.topics([topic]), "the topic", 60.0)

    def write_plan(self, topic, recipe="mirror"):
        path = self.folder / f"{topic}.yaml"
        order = "per_proxy" if recipe == "double_write" else "strict"
        path.write_text(PLAN.format(topic=topic, recipe=recipe, order=order))
        self.migrate("plan", str(path), "--accept", "lone-replica")
        self.migrate("start", topic)

    def migrate(self, command, *arguments, code=0):
        done = self.penstock.call("migrate", command, *arguments)
        assert done.returncode == code, f"{command}: {done.returncode}: {done.stderr.decode()}{done.stdout.decode()}"
        return done.stderr.decode()

    def way(self, topic, *commands):
        for command in commands:
            self.migrate(command, topic)

    def row(self, topic):
        (row,) = self.penstock.run("migrate", "status", topic)["topic_rows"]
        return row

    def send(self, topic, prefix, count):
        """Send keyed messages, each until it is OK; returns their ids."""
        names = [f"{prefix}{number}" for number in range(count)]
        with closing(Sender(self.penstock, self.application)) as sender:  # a proxy closes one that is idle
            for name in names:
                message = Message(topic=topic, id=name, key=name, body=b"b")
                until(lambda message=message: sender.send(message)[0].code == Code.OK, f"{name} is OK", 60.0)
        return names

    def produce(self, topic, prefix, count, partition=0):
        """Records of a writer beside the proxies; returns their ids."""
        names = [f"{prefix}{number}" for number in range(count)]
        producer = open_driver().producer(self.connection, ProducerOptions())
        producer.partitions(topic)
        values = [each.encode() for each in names]
        headers = [[("penstock-id", each)] for each in values]
        codes: list[int] = []
        producer.produce(
            OutgoingRecords([topic] * count, [partition] * count, [1] * count, values, values, headers),
            lambda results: codes.extend(results.codes),
        )
        assert producer.flush(30) and set(codes) == {0}
        producer.close(10)
        return names

    def notes(self, name="kafka_bridge"):
        """The faults and notes of a process' /readyz, as text."""
        port = self.penstock.refresh()["ops"][name]
        try:
            page = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10))
        except urllib.error.HTTPError as answer:
            page = json.load(answer)
        return str({**page["faults"], **page["notes"]})

    def begin(self, command, topic):
        """A command that waits."""
        line = [*PENSTOCK, "migrate", command, topic, "--data", str(self.penstock.data)]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def send_into(self, topic, prefix, partition):
        """Send messages until one of them is in that partition of Kafka."""
        names = []

        def is_used():
            names.extend(self.send(topic, f"{prefix}{len(names)}-", 10))
            return self.ends(topic)[partition] > 0

        until(is_used, f"a message in partition {partition}", FOLLOWED_S_MAX)
        return names

    def add_partitions(self, topic, count):
        from confluent_kafka.admin import NewPartitions

        for done in self.hand.create_partitions([NewPartitions(topic, count)]).values():
            done.result(30)
        until(lambda: self.admin.topics([topic])[topic].partitions == count, "the partitions", 60.0)

    def delete_records(self, topic):
        """As retention does."""
        from confluent_kafka import TopicPartition

        ends = [TopicPartition(topic, number, end) for number, end in enumerate(self.ends(topic))]
        for done in self.hand.delete_records(ends).values():
            done.result(30)

    def ends(self, topic):
        partitions = [Partition(topic, number) for number in range(self.admin.topics([topic])[topic].partitions)]
        return [at or 0 for _, at in sorted(self.admin.offsets(partitions, END).items())]

    def queues(self, topic):
        return self.penstock.run("topic", "show", topic).get("queues", 8)

    def kafka_ids(self, topic):
        return sorted(self.kafka_order(topic))

    def kafka_order(self, topic):
        """Ids of all records, in the order of each partition."""
        ends, found = dict(enumerate(self.ends(topic))), []
        first = self.admin.offsets([Partition(topic, number) for number in ends], -2)
        with closing(open_driver().reader(self.connection, ReaderOptions())) as reader:
            reader.assign(first)

            def is_read():
                for records in reader.poll(0.2):
                    found.extend(dict(headers)["penstock-id"].decode() for headers in records.headers)
                return all(at >= ends[each.number] for each, at in reader.positions().items())

            until(is_read, f"the records of {topic}", 60.0)
        return found

    def engine_ids(self, topic):
        found = []
        for queue in range(self.queues(topic)):
            offset = 0
            while page := self._page(topic, queue, offset):
                found += [each["id"] for each in page]
                offset = page[-1]["offset"] + 1
        return sorted(found)

    def _page(self, topic, queue, offset):
        done = self.penstock.call(
            "message", "browse", "-t", topic, "--queue", str(queue), "--offset", str(offset), "--limit", "2000", "-o", "json"
        )  # fmt: skip
        return json.loads(done.stdout or b"[]") if done.returncode == 0 else []

    def wait_same(self, topic, wanted):
        """Wait until both sides have these messages, each once."""
        until(
            lambda: self.engine_ids(topic) == self.kafka_ids(topic) == sorted(wanted), f"equal sides of {topic}", 90.0
        )  # fmt: skip

    def close(self) -> None:
        self.admin.close()
        self.penstock.end()
        self.brokers.stop()


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    made = Changing(tmp_path_factory.mktemp("changing"))
    yield made
    made.close()


def test_partitions_that_are_added_while_a_mirror_soaks_are_followed_and_it_rolls_back(changing):
    topic = "grown"
    changing.plan(topic, partitions=2)
    sent = changing.send(topic, "before", 10)
    changing.way(topic, "verify", "cut", "soak")
    refused = changing.penstock.call("topic", "set", topic, "--queues", "4")
    assert refused.returncode == 4 and b"add partitions in Kafka" in refused.stderr
    changing.add_partitions(topic, 4)
    until(lambda: changing.queues(topic) == 4, "four queues", FOLLOWED_S_MAX)
    sent += changing.send(topic, "own", 30)
    assert changing.row(topic)["notes"] == []
    changing.migrate("verify", topic, "--all")
    changing.way(topic, "rollback")
    changing.wait_same(topic, sent)
    sent += changing.send_into(topic, "after", 3)
    changing.way(topic, "verify", "cut", "soak", "retire")
    changing.wait_same(topic, sent)


def test_partitions_that_are_added_while_proxies_write_to_both_sides_lose_and_double_nothing(changing):
    topic = "both"
    changing.plan(topic, "double_write", partitions=2)
    sent = changing.send(topic, "before", 10)
    changing.way(topic, "verify")
    changing.add_partitions(topic, 4)
    sent += changing.send_into(topic, "grown", 3)
    changing.migrate("verify", topic, "--all")
    changing.way(topic, "cut", "soak")
    changing.wait_same(topic, sent)
    assert (changing.row(topic)["kafka_got"], changing.row(topic)["notes"]) == (changing.row(topic)["engine_got"], [])
    changing.add_partitions(topic, 6)
    sent += changing.send(topic, "engine", 20)
    changing.way(topic, "rollback")
    sent += changing.send_into(topic, "back", 5)
    changing.migrate("verify", topic, "--all")
    changing.wait_same(topic, sent)
    changing.way(topic, "abort")  # the bridge copies the topic again, from where the proxies have ended
    sent += changing.send(topic, "copied", 20)
    changing.wait_same(topic, sent)


def test_an_abort_ends_while_partitions_that_were_added_have_no_record_and_what_comes_into_them_is_copied(changing):
    topic = "empty"
    changing.plan(topic, "double_write", partitions=2)
    sent = changing.send(topic, "before", 10)
    changing.way(topic, "verify")
    changing.add_partitions(topic, 4)
    until(lambda: changing.queues(topic) == 4, "four queues", FOLLOWED_S_MAX)
    changing.way(topic, "abort")
    sent += changing.produce(topic, "after", 5, partition=3)
    changing.wait_same(topic, sent)


def test_the_position_of_a_topic_that_was_deleted_here_hides_no_message_of_the_next_one(changing):
    topic = "again"
    changing.plan(topic)
    changing.way(topic, "verify", "cut", "soak")
    changing.send(topic, "trial", 20)
    until(lambda: changing.row(topic)["behind_out"] == 0, "the copy back", FOLLOWED_S_MAX)
    changing.way(topic, "rollback", "abort")
    assert position_group(topic) not in changing.admin.groups()
    changing.admin.set_group_offsets(position_group(topic), {Partition(topic, 0): 20})  # a version before left it there
    changing.penstock.run("topic", "delete", topic, "--yes", "--force")
    changing.delete_records(topic)
    changing.write_plan(topic)
    changing.way(topic, "verify", "cut", "soak")
    sent = changing.send(topic, "own", 40)
    changing.migrate("verify", topic, "--all")
    changing.way(topic, "rollback")
    changing.wait_same(topic, sent)


def test_a_position_that_kafka_has_expired_is_found_again_with_and_without_a_bridge(changing):
    topic = "quiet"
    changing.plan(topic)
    changing.way(topic, "verify", "cut", "soak")
    sent = changing.send(topic, "own", 30)
    until(lambda: changing.row(topic)["behind_out"] == 0, "the copy back", FOLLOWED_S_MAX)
    changing.admin.delete_groups([position_group(topic)])
    assert changing.row(topic)["behind_out"] == 0, "by the records that were copied"
    changing.migrate("verify", topic, "--all")
    pid = changing.penstock.kill("kafka_bridge")
    changing.penstock.wait_replaced("kafka_bridge", pid)
    until(
        lambda: changing.admin.group_offsets(position_group(topic)), "the position is committed again", FOLLOWED_S_MAX
    )
    changing.way(topic, "rollback")
    changing.wait_same(topic, sent)

"""The recipe double_write end to end: PHP producers that never stop, a Java consumer on Kafka, a consumer on the engine.

20 topics are paired, cut, rolled back, cut again and retired under load.
"""

import json
import re
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from common.contract import Code, Message
from common.kafka.base import NewKafkaTopic, ProducerOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords
from tests.e2e.kafka.home import Puller, Sender
from tests.e2e.running import RunningPenstock
from tests.services import thrift_toolchains
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

TOPICS = [f"dw.{number:02d}" for number in range(20)]
PARTITIONS, HISTORY, KEYS = 2, 10, 4
PLAN = f"""\
name: double
recipe: double_write
cluster: main
topics: [{", ".join(TOPICS)}]
gates: {{error_rate: 1}}
limits: {{fence_s: 60, soak_hours: 0}}
"""
LEFT = "left"
LEFT_PLAN = f"name: left\nrecipe: double_write\ncluster: main\ntopics: [{LEFT}]\n"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ID = re.compile(r"penstock-id:(dw\.\d\d)/([\w.]+)")
STEADY = Path(__file__).with_name("steady_producer.php")


class Double:
    """A broker with topics that have a history, and a Penstock that knows it."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka").start()
        self.connection, self.folder = KafkaConnection("main", (self.brokers.bootstrap,)), folder
        with closing(open_driver().admin(self.connection)) as admin:
            assert admin.create_topics(dict.fromkeys([*TOPICS, LEFT], NewKafkaTopic(PARTITIONS, 1))) == {}
            until(lambda: len(admin.topics([*TOPICS, LEFT])) == len(TOPICS) + 1, "the topics", 30.0)
        self._write_history()
        self.penstock = RunningPenstock(folder / "data")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"], pull=["*"])
        (folder / "plan.yaml").write_text(PLAN)
        (folder / "left.yaml").write_text(LEFT_PLAN)

    def _write_history(self) -> None:
        """Records of a writer that knows nothing of Penstock."""
        producer, results = open_driver().producer(self.connection, ProducerOptions()), []
        try:
            for topic in TOPICS:
                assert producer.partitions(topic) == PARTITIONS
                bodies = [b"old.%03d" % number for number in range(HISTORY)]
                partitions = [number % PARTITIONS for number in range(HISTORY)]
                none = [None] * HISTORY
                records = OutgoingRecords([topic] * HISTORY, partitions, [-1] * HISTORY, none, bodies, [()] * HISTORY)
                producer.produce(records, results.append)
            until(lambda: len(results) == len(TOPICS), "the history", 30.0)
        finally:
            producer.close(10.0)
        assert all(each.all_stored for each in results)

    def migrate(self, *arguments, code=0):
        done = self.penstock.call("migrate", *arguments, "-o", "json")
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode() + self.penstock.logs()
        return json.loads(done.stdout) if code == 0 else done.stderr.decode()

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


class SteadyProducer:
    """A PHP program that sends to every topic until it is stopped.

    Attributes:
        ok: ids in the order in which they were answered OK, as (topic, body).
        retried: number of messages that were sent again, whatever the reason.
    """

    def __init__(self, double, name) -> None:
        thrift_toolchains.build("php")
        app = double.application
        line = [
            "php", *thrift_toolchains.php_extension(), str(STEADY), "{}:{}".format(*double.penstock.producer), app.app,
            app.key_id, name, str(KEYS), *TOPICS,
        ]  # fmt: skip
        self.ok: list[tuple[str, str]] = []
        self.retried = 0
        self._process = subprocess.Popen(
            line, env=thrift_toolchains.environment(PENSTOCK_SECRET=app.secret), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            if line.startswith("retried "):
                self.retried = int(line.split()[1])
            else:
                self.ok.append(tuple(line.strip().split("/")))

    def wait_for_more(self, count) -> None:
        wanted = len(self.ok) + count
        until(lambda: len(self.ok) >= wanted or self._process.poll() is not None, f"{count} more are OK", 60.0)
        assert self._process.poll() is None, self._process.stderr.read()

    def stop(self) -> None:
        self._process.stdin.close()
        assert self._process.wait(90) == 0, self._process.stderr.read()
        self._reading.join(10)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class EngineConsumer:
    """Pulls every topic through the consumer proxy in a thread; `found` are (topic, body) in the order of arrival."""

    def __init__(self, double) -> None:
        self.found: list[tuple[str, str]] = []
        self._puller, self._stopping = Puller(double, "engine.readers"), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.found += [(each.message.topic, each.message.body.decode()) for each in self._puller.pull(*TOPICS)]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._puller.close()


class JavaConsumer:
    """Kafka's console consumer as a member of a group; its lines have the header with the id, then the body."""

    def __init__(self, double) -> None:
        arguments = ["--bootstrap-server", double.brokers.bootstrap, "--include", r"dw\..*", "--group", "java.readers"]
        arguments += ["--from-beginning", "--consumer-property", "metadata.max.age.ms=1000"]
        arguments += ["--property", "print.headers=true"]
        self._java = double.brokers.program(CONSOLE, *arguments)

    @property
    def found(self) -> list[tuple[str, str]]:
        """(topic, body) of each message of a producer, in the order of arrival."""
        named = [ID.search(each) for each in self._java.lines()]
        return [(each[1], each[2]) for each in named if each is not None]

    def stop(self) -> None:
        self._java.end()


@pytest.fixture(scope="module")
def double(tmp_path_factory):
    made = Double(tmp_path_factory.mktemp("double"))
    yield made
    made.close()


def assert_in_order(bodies, what):
    """Messages of one key come in the order of their numbers; the second arrival of one does not count."""
    last: dict[str, str] = {}
    for body in dict.fromkeys(bodies):
        key = body.rpartition(".")[0]
        assert last.get(key, "") < body, f"{what}: {body} comes after {last[key]}"
        last[key] = body


def test_topics_with_live_producers_and_consumers_on_both_sides_are_cut_rolled_back_cut_again_and_retired(double):
    assert double.migrate("plan", str(double.folder / "plan.yaml"), "--accept", "lone-replica")["topics"] == len(TOPICS)
    assert double.migrate("start", "double")["step"] == "copying"
    producers = [SteadyProducer(double, name) for name in ("a", "b")]
    java, engine = JavaConsumer(double), EngineConsumer(double)
    try:
        way(double, producers)
        in_kafka = {pair for each in producers for pair in each.ok}
        double.migrate("retire", "double")
        assert double.penstock.run("topic", "show", TOPICS[-1]).get("secondary", "") == ""
        producers[0].wait_for_more(200)
        for each in producers:
            each.stop()
        sent = [pair for each in producers for pair in each.ok]
        assert len(sent) == len(set(sent)) > 1_000
        old = {(topic, f"old.{number:03d}") for topic in TOPICS for number in range(HISTORY)}
        until(lambda: old.union(sent) <= set(engine.found), "every message in the engine", 30.0)
        until(lambda: in_kafka <= set(java.found), "every message of before the end in Kafka", 60.0)
    finally:
        for each in producers:
            each.kill()
        java.stop()
        engine.stop()
    retried = sum(each.retried for each in producers)
    for found in (engine.found, java.found):
        assert len(found) - len(set(found)) <= retried, "only what its sender has sent again can be there twice"
        for topic in TOPICS:
            assert_in_order([body for at, body in found if at == topic and not body.startswith("old.")], topic)


def way(double, producers):
    """From the first copy to the second soak, with sends between all commands."""

    def go(command, step):
        assert double.migrate(command, "double")["step"] == step
        for each in producers:
            each.wait_for_more(60)

    go("verify", "verified")
    status = double.migrate("status", "double")
    assert {(each["home"], each["secondary"]) for each in status["topic_rows"]} == {("kafka", "engine")}
    assert all(each["kafka_end"] >= HISTORY and each["engine_got"] is not None for each in status["topic_rows"])
    go("cut", "cut")
    go("soak", "soaking")
    go("rollback", "copying")
    go("verify", "verified")
    go("cut", "cut")
    go("soak", "soaking")
    shown = double.penstock.run("topic", "show", TOPICS[0])
    assert (shown["cut"]["epoch"], shown["secondary"]) == (4, "kafka:main")


def test_an_aborted_plan_leaves_a_copy_in_the_engine_that_has_each_message_once(double):
    double.migrate("plan", str(double.folder / "left.yaml"), "--accept", "lone-replica")
    sender = Sender(double.penstock, double.application)
    sent = [f"m{number}" for number in range(30)]

    def send(names):
        messages = [Message(topic=LEFT, id=name, key=name, body=name.encode()) for name in names]

        def codes():
            found = {each.code for each in sender.send(*messages)}
            return None if found == {Code.FENCED} else found  # the proxy has not applied the end of the fence yet

        assert until(codes, "sends are not fenced") == {Code.OK}

    for command, names in (("start", sent[:10]), ("verify", sent[10:20]), ("abort", sent[20:])):
        double.migrate(command, "left")
        send(names)
    sender.close()
    shown = double.penstock.run("topic", "show", LEFT)
    assert (shown["home"], shown.get("secondary", "")) == ("kafka:main", "")
    with closing(Puller(double, "left.readers")) as puller:
        found = [each.id for each in puller.take(LEFT, len(sent))]
    assert sorted(found) == sorted(sent)

"""`penstock migrate` end to end: a real broker, `penstock up` with its bridge, the commands as processes, senders that never stop."""

import itertools
import json
import subprocess
import threading
import time
from contextlib import closing

import pytest

from common.contract import Code, Message, Verdict, decode_struct
from common.kafka.base import END, NewKafkaTopic, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords, Partition
from common.names import stored_name
from engine.client.admin import AdminClient
from engine.link.codes import OK
from engine.link.operations import READ
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import read_record
from penstock.up.directory import ADMIN_KEY
from tests.e2e.kafka.home import Puller, Sender
from tests.e2e.running import PENSTOCK, RunningPenstock
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

PARTITIONS = {"orders": 3, "pay": 1, "spare": 1}
KEYS = 5
PLAN = """\
name: shop
recipe: mirror
cluster: main
topics: [orders, pay]
gates: {lag_messages: 200, error_rate: 1}
limits: {fence_s: 60, soak_hours: 0}
"""


class Move:
    """A broker with topics, and a Penstock that knows it."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka").start()
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        topics = {name: NewKafkaTopic(count, 1) for name, count in PARTITIONS.items()}
        topics["state"] = NewKafkaTopic(1, 1, {"cleanup.policy": "compact"})
        with closing(open_driver().admin(self.connection)) as admin:
            assert admin.create_topics(topics) == {}
            until(lambda: len(admin.topics([*topics])) == len(topics), "the topics", 30.0)
        self.folder, self.penstock = folder, RunningPenstock(folder / "data")
        (folder / "data" / "config").mkdir(parents=True)  # without a running Penstock: the configuration is a directory
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"], pull=["*"])

    def migrate(self, *arguments, code=0):
        done = self.penstock.call("migrate", *arguments)
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        return done.stdout.decode() if code == 0 else done.stderr.decode()

    def told(self, *arguments):
        return json.loads(self.migrate(*arguments, "-o", "json"))

    def plan_file(self, text, name="plan.yaml"):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def records(self, topic):
        """Kafka's records as (partition, key, id), in the order of each partition."""
        wanted = [Partition(topic, number) for number in range(PARTITIONS[topic])]
        found = []
        with closing(open_driver().admin(self.connection)) as admin:
            ends = admin.offsets(wanted, END)
        with closing(open_driver().reader(self.connection, ReaderOptions())) as reader:
            reader.assign(dict.fromkeys(wanted, 0))

            def read():
                for each in reader.poll(0.2):
                    rows = zip(each.keys, each.headers, strict=True)
                    found.extend(
                        (each.partition.number, key, dict(headers)["penstock-id"].decode()) for key, headers in rows
                    )
                return all(at >= ends[each] for each, at in reader.positions().items())

            until(read, f"the records of {topic}", 60.0)
        return found

    def stored(self, topic):
        """The engine's messages as (queue, key, id), in the order of each queue."""
        made_ms = self.told_topic(topic).get("made_ms", 0)
        name, found = stored_name(topic, made_ms) if made_ms else topic, []
        with AdminClient(self.penstock.engine, (self.folder / "data" / ADMIN_KEY).read_bytes()) as link:
            for queue in range(PARTITIONS[topic]):
                found += [(queue, *each) for each in queue_of(link, name, queue)]
        return found

    def told_topic(self, name):
        return self.penstock.run("topic", "show", name)

    def home(self, name):
        """The engine is the default, which an entry does not name."""
        return self.told_topic(name).get("home", "engine")

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


def queue_of(link, name, queue):
    """(key, id) of each message of a queue."""
    offset = 0
    while page := messages_of(link, name, queue, offset):
        yield from ((message.key, message.id) for message in page)
        offset += len(page)


def messages_of(link, name, queue, offset):
    """One page of a queue's messages."""
    code, payload = link.call(READ, ReadQuestion([ReadPosition(name, queue, offset=offset)], 1000, 1 << 20).encode())
    assert code == OK, payload
    found = []
    for piece in ReadAnswer.decode(payload).pieces():
        at = 0
        for _ in range(piece.count):
            record, at = read_record(piece.records, at)
            found.append(decode_struct(Message, record.message))
    return found


class SteadyLoad:
    """Sends numbered messages with keys one by one, as a caller that retries 2xx codes with the same id."""

    def __init__(self, move, topic, first=0) -> None:
        self.ok: list[str] = []
        self._first = first
        self.codes: dict[int, int] = {}
        self._sender, self._topic, self._stopping = Sender(move.penstock, move.application), topic, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count(self._first):
            name = f"m{number:06d}"
            while True:
                (result,) = self._sender.send(Message(topic=self._topic, id=name, key=f"k{number % KEYS}", body=b"b"))
                self.codes[result.code] = self.codes.get(result.code, 0) + 1
                if result.code == Code.OK:
                    self.ok.append(name)
                    break
                if self._stopping.is_set():
                    return
                self._stopping.wait((result.retry_after_ms or 20) / 1000)  # a pace, not a wait for anything
            if self._stopping.is_set():
                return

    def wait_for_more(self, count) -> None:
        before = len(self.ok)
        until(lambda: len(self.ok) >= before + count, f"{count} more sends are OK", 60.0)

    def stop(self):
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._sender.close()
        return self.ok


@pytest.fixture(scope="module")
def move(tmp_path_factory):
    made = Move(tmp_path_factory.mktemp("move"))
    yield made
    made.close()


def test_the_inventory_lists_topics_and_what_stands_against_their_move(move):
    rows = {each["name"]: each for each in move.told("inventory", "main", "--sample", "5")}
    assert {name: rows[name]["partitions"] for name in PARTITIONS} == PARTITIONS
    assert any("cleanup.policy is compact" in each for each in rows["state"]["notes"])
    assert any("--accept lone-replica" in each for each in rows["orders"]["notes"])
    assert 'kafka "other": not found' in move.migrate("inventory", "other", code=3)


def test_a_plan_is_refused_with_all_faults_at_once_and_stored_when_there_are_none(move):
    wrong = PLAN.replace("[orders, pay]", "[{name: orders, queues: 4}, state, nowhere]")
    told = move.migrate("plan", move.plan_file(wrong, "wrong.yaml"), "--accept", "lone-replica", code=2)
    assert len(told.splitlines()) == 1
    for part in ('topics[0].queues: 4: "orders" has 3 partitions', 'topics[1]: "state": cleanup.policy is compact',
                 'topics[2].name: "nowhere" is not a topic of cluster main'):  # fmt: skip
        assert part in told
    assert 'plan "shop": not found' in move.migrate("status", "shop", code=3)
    stored = move.told("plan", move.plan_file(PLAN), "--accept", "lone-replica")
    assert (stored["plan"], stored["topics"], stored["stored"]) == ("shop", 2, "yes")
    assert move.told("status")[0]["step"] == "planned"


def test_start_creates_the_topics_and_the_copies_and_status_says_what_is_missing(move):
    assert move.told("start", "shop")["step"] == "copying"
    assert move.told_topic("orders")["body_bytes_max"] == 1_048_588 - (68 << 10), "what Kafka takes by default fits"
    shown = move.told_topic("orders")
    assert (shown["home"], shown["queues"]) == ("kafka:main", PARTITIONS["orders"])
    status = move.told("status", "shop")
    assert status["waits_for"] == "an operator: verify is next" and "Z (" in status["since"]
    taken = PLAN.replace("shop", "again")
    told = move.migrate("plan", move.plan_file(taken, "again.yaml"), "--accept", "lone-replica", code=2)
    assert 'topics[0].name: "orders" is in plan shop: a topic is in one plan at most' in told


def test_an_aborted_plan_leaves_topics_at_kafka_and_no_copies(move):
    text = PLAN.replace("shop", "brief").replace("[orders, pay]", "[spare]")
    move.told("plan", move.plan_file(text, "brief.yaml"), "--accept", "lone-replica")
    move.told("start", "brief")
    assert move.told("abort", "brief")["step"] == "aborted"
    assert move.home("spare") == "kafka:main"
    assert "it is aborted: start is possible when it is planned" in move.migrate("start", "brief", code=4)


def test_a_cut_under_load_loses_and_doubles_nothing_and_keeps_the_order_of_every_key(move):
    with closing(Sender(move.penstock, move.application)) as sender:
        until(lambda: sender.send(Message(topic="pay", id="first"))[0].code == Code.OK, "the bridge serves", 60.0)
    write_in_a_transaction(move)
    load = SteadyLoad(move, "orders")
    load.wait_for_more(50)
    assert move.told("verify", "shop")["step"] == "verified"
    dry = move.told("cut", "shop", "--dry-run")
    assert [each["sub_step"] for each in dry][-2:] == ["switch", "followed"]
    assert move.home("orders") == "kafka:main", "a dry run changes nothing"
    kill_behind_the_fence(move)
    status = move.told("status", "shop")
    assert status["course"] == "cut" and "no process is at work: use resume" in status["waits_for"]
    began = time.monotonic()
    assert move.told("resume", "shop")["step"] == "cut"
    print(f"cut in {time.monotonic() - began:.1f} s; codes {load.codes}")
    load.wait_for_more(50)
    sent = load.stop()
    shown = move.told_topic("orders")
    assert move.home("orders") == "engine" and "fence" not in shown and shown["cut"]["epoch"] == 1
    stored = move.stored("orders")
    ids = [each for _, _, each in stored]
    assert len(ids) == len(set(ids)), "a message is doubled"
    assert set(sent) - set(ids) == set(), "a message that was OK is missing"
    for key in {key for _, key, _ in stored}:
        names = [each for _, own, each in stored if own == key]
        assert names == sorted(names), f"the order of {key}"
    assert set(load.codes) <= {Code.OK, Code.FENCED, Code.TIMEOUT, Code.UNAVAILABLE}
    assert load.codes.get(Code.FENCED, 0) > 0, "the load met the fence"
    with closing(open_driver().admin(move.connection)) as admin:
        ends = admin.offsets([Partition("orders", number) for number in range(3)], END)
    assert tuple(ends[Partition("orders", number)] for number in range(3)) == tuple(shown["cut"]["kafka_ends"])


def write_in_a_transaction(move):
    """Write a record whose transaction leaves a control record at the end of its partition, which no copy has."""
    options, results = ProducerOptions(transactional_id="teller"), []
    producer = open_driver().producer(move.connection, options)
    try:
        producer.partitions("pay")
        producer.begin()
        producer.produce(OutgoingRecords(["pay"], [0], [-1], [b"k"], [b"v"], [()]), results.append)
        producer.commit({}, "")
    finally:
        producer.close(10.0)
    assert results[0].all_stored


def kill_behind_the_fence(move):
    """Begin the cut, and kill its process once the fence is set."""
    line = [*PENSTOCK, "migrate", "cut", "shop", "--data", str(move.penstock.data)]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    with process:
        assert any("cut: sent" in told for told in process.stderr), "it ended before"
        process.kill()


def test_a_rollback_is_refused_while_delayed_messages_or_dead_letters_would_stay_in_the_engine(move):
    with closing(Sender(move.penstock, move.application)) as sender:
        delayed = Message(topic="pay", id="later", body=b"b", delay_ms=3_600_000)
        assert [each.code for each in sender.send(delayed, Message(topic="pay", id="bad", body=b"b"))] == [Code.OK] * 2
    told = move.migrate("rollback", "shop", code=4)
    assert "1 delayed messages of pay wait" in told and "penstock timer list --topic pay" in told
    move.penstock.run("timer", "cancel", "--topic", "pay", "later")
    with closing(Puller(move, "strict")) as puller:
        found = until(lambda: puller.pull("pay"), "messages of pay", 60.0)
        puller.verdict(Verdict.REJECT)
        puller.pull("pay", wait_ms=0)
    letters = ("group", "dead-letters", "list", "strict", "--topic", "pay")
    assert len(until(lambda: move.penstock.run(*letters), "the dead letters", 60.0)) <= len(found)
    told = move.migrate("rollback", "shop", code=4)
    assert "group strict has" in told and "dead letters of pay: a redrive after it would lead to the engine" in told
    assert move.home("pay") == "engine" and "fence" not in move.told_topic("pay")
    move.penstock.run("group", "dead-letters", "purge", "strict", "--yes")


def test_a_rollback_under_load_brings_every_message_back_to_kafka(move):
    assert "it is cut: abort is possible when" in move.migrate("abort", "shop", code=4)
    load = SteadyLoad(move, "orders", first=500_000)
    assert move.told("soak", "shop")["step"] == "soaking"
    load.wait_for_more(50)
    assert move.told("rollback", "shop")["step"] == "copying"
    load.wait_for_more(20)
    sent = load.stop()
    assert (move.home("orders"), move.told_topic("orders")["cut"]["epoch"]) == ("kafka:main", 2)
    found = move.records("orders")
    assert set(sent) <= {each for _, _, each in found}, "a message that was OK is missing"
    own = [each for each in found if each[2] in set(sent)]
    assert len(own) == len(set(own)), "a message is doubled"
    for key in {key for _, key, _ in own}:
        names = [each for _, other, each in own if other == key]
        assert names == sorted(names), f"the order of {key}"
    assert load.codes.get(Code.FENCED, 0) > 0, "the load met the fence"


def test_what_was_rolled_back_is_cut_again_and_no_message_is_doubled(move):
    load = SteadyLoad(move, "orders", first=800_000)
    load.wait_for_more(20)
    for command, step in (("verify", "verified"), ("cut", "cut"), ("soak", "soaking")):
        assert move.told(command, "shop")["step"] == step
    load.wait_for_more(20)
    sent = load.stop()
    assert (move.home("orders"), move.told_topic("orders")["cut"]["epoch"]) == ("engine", 3)
    ids = [each for _, _, each in move.stored("orders")]
    assert len(ids) == len(set(ids)) and set(sent) <= set(ids)


def test_a_retired_plan_leaves_its_topic_in_the_engine_without_copies(move):
    text = PLAN.replace("shop", "small").replace("[orders, pay]", "[spare]")
    move.told("plan", move.plan_file(text, "small.yaml"), "--accept", "lone-replica")
    move.told("start", "small")
    for command, step in (("verify", "verified"), ("cut", "cut"), ("soak", "soaking"), ("retire", "retired")):
        assert move.told(command, "small")["step"] == step
    assert move.home("spare") == "engine"
    assert "now retired" in [each["what"] for each in move.told("status", "small", "--history")]

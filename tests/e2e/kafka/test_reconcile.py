"""`penstock migrate verify` and `positions` end to end: a real broker, `penstock up` with its bridge, faults that are planted."""

import json
import threading
from contextlib import closing, contextmanager

import pytest

from common.contract import Message, encode_struct
from common.kafka.base import END, ProducerOptions
from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash
from common.kafka.drivers import installed, open_driver
from common.kafka.errors import ClusterUnreachable
from common.kafka.records import OutgoingRecords, Partition
from common.names import stored_name
from engine.client import copied
from engine.client.admin import AdminClient
from engine.link.append import FSYNC, encode_append
from engine.link.batch import encode_batch
from engine.link.codes import OK
from engine.link.operations import APPEND
from engine.link.record import encode_record
from penstock.up.directory import ADMIN_KEY
from tests import reconcile
from tests.e2e.kafka.home import PARTITIONS, Home, Puller
from tests.services import require
from tests.waiting import until

PLAN = "name: {name}\nrecipe: mirror\ncluster: main\ntopics: [{name}]\nlimits: {{fence_s: 60, soak_hours: 0}}\n"


class Compared(Home):
    """Topics `orders` and `read` in Kafka, each with a plan of its name."""

    def __init__(self, folder) -> None:
        require(installed(), "pip install kafka-python")
        super().__init__(folder, "auto", ["orders", "read"])
        self.folder, self.made = folder, {}

    def migrate(self, *arguments, code=0):
        done = self.penstock.call("migrate", *arguments, "-o", "json")
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        return json.loads(done.stdout)

    def begin(self, name) -> None:
        path = self.folder / f"{name}.yaml"
        path.write_text(PLAN.format(name=name))
        self.migrate("plan", str(path), "--accept", "lone-replica")
        self.migrate("start", name)

    @contextmanager
    def producer(self, **options):
        made = open_driver().producer(self.connection, ProducerOptions(**options))
        made.partitions("orders")
        yield made
        made.close(5.0)

    @contextmanager
    def link(self):
        with AdminClient(self.penstock.engine, (self.folder / "data" / ADMIN_KEY).read_bytes()) as link:
            yield link

    def place(self, link, topic, queue):
        """The topic's id in the engine."""
        if topic not in self.made:
            self.made[topic] = self.penstock.run("topic", "show", topic).get("made_ms", 0)
        return copied.states(link, [(stored_name(topic, self.made[topic]), queue)])[0].topic_id

    def append(self, topic, queue, name, body) -> None:
        """A message in the engine that no copier has brought."""
        with self.link() as link:
            record = encode_record(encode_struct(Message(topic=topic, id=name, key="k", body=body)))
            batch = encode_batch(self.place(link, topic, queue), queue, [record])
            assert link.call(APPEND, encode_append(FSYNC, batch))[0] == OK

    def write_marked(self, topic, queue, name, body, offset) -> None:
        """A record in Kafka that says of itself that the engine has it, at an offset."""
        with self.link() as link:
            place = (link.hello.log_id, self.place(link, topic, queue), queue)
        mark = CopyMark(*place, offset, content_hash(b"k", body)).encode()
        headers = [("penstock-id", name.encode()), (COPY_HEADER, mark)]
        with self.producer() as producer:
            write(producer, topic, [queue], [body], [headers])


def write(producer, topic, partitions, values, headers):
    """Records with the key `k`, now; returns once all are stored."""
    results = []
    count = len(values)
    records = OutgoingRecords([topic] * count, partitions, [now_ms()] * count, [b"k"] * count, values, headers)
    producer.produce(records, results.append)
    assert producer.flush(30) and results[0].all_stored


def now_ms():
    return reconcile.time.time_ns() // 1_000_000


def is_set(admin, group, positions) -> bool:
    """Set a group's positions; False while the coordinator, which may be new, still loads."""
    try:
        admin.set_group_offsets(group, positions)
    except ClusterUnreachable:
        return False
    return True


def names(count, first=0):
    return [[("penstock-id", b"m%d" % number)] for number in range(first, first + count)]


def spread(count):
    return [number % PARTITIONS for number in range(count)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Compared(tmp_path_factory.mktemp("compared")).start()
    yield made
    made.close()


def test_sides_that_grow_meanwhile_and_have_the_same_messages_are_verified(home):
    stopping, written = threading.Event(), []

    def load():
        with home.producer() as producer:
            while not stopping.is_set():
                write(producer, "orders", spread(20), [b"body"] * 20, names(20, 20 * len(written)))
                written.append(1)

    sending = threading.Thread(target=load, daemon=True)
    sending.start()
    until(lambda: len(written) > 5, "records are written", 60.0)
    home.begin("orders")
    found = home.migrate("verify", "orders")
    stopping.set()
    sending.join(30)
    (topic,) = found["topic_rows"]
    assert (found["step"], found["findings"], topic["differing"]) == ("verified", [], 0)
    assert topic["kafka"] == topic["engine"] > 20


def test_what_was_planted_is_listed_and_what_is_missing_is_repaired_beside_a_copier_that_runs(home):
    home.append("orders", 0, "only-engine", b"a")
    home.append("orders", 1, "m1", b"body")
    home.write_marked("orders", 2, "only-kafka", b"c", 10_000_000)
    home.write_marked("orders", 3, "odd", b"in kafka", 10_000_001)
    home.append("orders", 3, "odd", b"in the engine")
    found = home.migrate("verify", "orders", "--all", code=1)
    wanted = [
        (0, "missing in Kafka", "only-engine"), (1, "doubled in the engine", "m1"),
        (2, "missing in the engine", "only-kafka"), (3, "altered", "odd"),
    ]  # fmt: skip
    assert [(each["queue"], each["what"], each["id"]) for each in found["findings"]] == wanted
    assert found["step"] == "copying", "sides that differ are not verified"
    found = home.migrate("verify", "orders", "--all", "--repair", "--take", "kafka", code=1)
    assert (found["repaired_in_engine"], found["repaired_in_kafka"]) == (2, 1)
    assert [(each["what"], each["id"]) for each in found["findings"]] == [
        ("doubled in the engine", "m1"), ("superseded", "odd"),
    ]  # fmt: skip
    home.migrate("report", "orders", "--out", str(home.folder / "report"), "--seconds", "1")
    report = json.loads((home.folder / "report" / "report.json").read_text())
    assert any("1 ids differ; repaired 2 in the engine and 1 in Kafka" in each["what"] for each in report["history"])
    assert report["comparison"]["topics"][0]["doubled_in_engine"] == 1 and len(report["samples"]) > 1
    assert "doubled in the engine" in (home.folder / "report" / "report.md").read_text()
    assert (home.folder / "report" / "rates.svg").exists()


def test_repairs_are_not_copied_once_more_and_the_copier_goes_on(home):
    with home.producer() as producer:
        write(producer, "orders", spread(8), [b"later"] * 8, names(8, 1_000_000))
    partitions = [Partition("orders", number) for number in range(PARTITIONS)]
    with closing(open_driver().admin(home.connection)) as admin:
        count = sum(admin.offsets(partitions, END).values())
    until(lambda: home.migrate("status", "orders")["behind"] == 0, "the copier goes on", 60.0)
    (topic,) = home.migrate("verify", "orders", "--all", code=1)["topic_rows"]
    # The doubled message, and the second form of the altered one; the marked records count once on each side.
    assert (topic["kafka"], topic["engine"]) == (count, count + 2)
    shown = [dict(headers).get("penstock-id", b"").decode() for *_, headers in home.records("orders", count)]
    assert sorted(each for each in shown if each.startswith("o")) == ["odd", "only-engine", "only-kafka"]


def test_positions_of_a_group_are_translated_so_that_it_reads_on_where_it_was(home):
    group, bodies = "readers", {}
    with home.producer(transactional_id="t") as producer:
        for number in range(6):
            producer.begin()
            values = [b"%d-%d" % (number, each) for each in range(12)]
            producer.produce(
                OutgoingRecords(["read"] * 12, spread(12), [now_ms()] * 12, [b"k"] * 12, values, [()] * 12),
                lambda _: None,
            )
            producer.commit({}, "")
    home.begin("read")
    for partition, key, value, _ in home.records("read", 72):
        assert key == b"k"
        bodies.setdefault(partition, []).append(value)
    # Each transaction ends with a control record: three records and one offset that holds none.
    committed = {Partition("read", 0): 0, Partition("read", 1): 6, Partition("read", 2): 7, Partition("read", 3): 24}
    read = {0: 0, 1: 5, 2: 6, 3: 18}
    with closing(open_driver().admin(home.connection)) as admin:
        until(lambda: is_set(admin, group, committed), "the coordinator takes positions", 30)
    home.migrate("verify", "read")
    positions = ("migrate", "positions", "read", "--group", group)
    until(lambda: home.penstock.call(*positions).returncode == 0, "all that the group has read is copied", 60)
    rows = home.migrate(*positions[1:])
    assert {each["queue"]: (each["kafka"], each["engine"]) for each in rows} == {
        each.number: (at, read[each.number]) for each, at in committed.items()
    }
    assert [each["checked"] for each in rows] == ["after", "before and after", "before and after", "before"]
    assert {each["engine_now"] for each in rows} == {None}, "a dry run changes nothing"
    assert home.penstock.call("group", "lag", group).returncode == 3
    home.migrate("positions", "read", "--group", group, "--apply")
    with closing(Puller(home, group)) as puller:
        pulled = sorted(each.message.body for each in puller.take("read", 72 - sum(read.values())))
    assert pulled == sorted(value for queue, values in bodies.items() for value in values[read[queue] :])
    assert home.penstock.call("migrate", "positions", "read", "--group", "nobody").returncode == 3


def test_messages_of_the_engines_own_are_compared_with_their_copies_in_kafka_after_the_cut(home):
    for command, step in (("cut", "cut"), ("soak", "soaking")):
        assert home.migrate(command, "read")["step"] == step
    with closing(home.sender()) as sender:
        for number in range(40):
            (result,) = sender.send(Message(topic="read", key=f"k{number}", body=b"own %d" % number))
            assert result.code == OK
    until(lambda: home.migrate("status", "read")["topic_rows"][0]["behind_out"] == 0, "the copy back", 60.0)
    found = home.migrate("verify", "read", "--all")
    (topic,) = found["topic_rows"]
    assert (topic["kafka"], topic["engine"], topic["differing"], found["step"]) == (112, 112, 0, "soaking")
    with closing(open_driver().admin(home.connection)) as admin:
        ends = admin.offsets([Partition("read", number) for number in range(PARTITIONS)], END)
        admin.set_group_offsets("late", ends)
    rows = home.migrate("positions", "read", "--group", "late")
    assert sum(each["engine"] for each in rows) == 112, "the group has read everything"
    assert all(each["engine"] == each["end"] for each in rows)


def test_one_missing_one_doubled_and_one_altered_of_many_are_found_and_all_but_the_doubled_one_repaired(home, tmp_path):
    planted, found = reconcile.run(tmp_path, 50_000, home.brokers)
    reconcile.check(planted, found)
    assert found["messages"] == found["in_engine"] == 50_000 and found["differing"] == 3
    assert found["drilled_rows"] < 25_000, "only the minutes that differ are read again"
    assert found["peak_mib"] < 400

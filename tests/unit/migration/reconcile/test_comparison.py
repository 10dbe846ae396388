"""Comparisons over a Kafka in memory and a real engine: which messages are judged, and what a repair writes."""

import uuid
from dataclasses import replace
from types import SimpleNamespace

import pytest

from common.admin.administrator import Administrator
from common.clock import SystemClock
from common.config.definitions import CutRecord, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Message, encode_struct
from common.kafka.base import ReaderOptions
from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME, parse_repair_mark
from engine.client import copied
from engine.client.admin import AdminClient
from engine.link.append import FSYNC, encode_append
from engine.link.batch import encode_batch, encode_packed_batch
from engine.link.codes import OK
from engine.link.copy import CopyPart
from engine.link.operations import APPEND, TOPIC
from engine.link.record import encode_record
from engine.link.topic import encode_topics
from kafka_bridge.copy_in.native import PackTarget, pack
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import CopiedPositions, note_of, position_group
from kafka_bridge.mapping import fields_of, record_of
from kafka_bridge.source_identity import source_of
from migration.errors import PlanRefused
from migration.group_positions import GroupPositions
from migration.positions import CopiedTopic, EnginePositions
from migration.reconcile import comparison
from migration.reconcile.bounds import BoundsFinder
from migration.reconcile.comparison import TopicComparison
from migration.reconcile.findings import DiscrepancyKind
from migration.reconcile.lookups import FindingReads
from migration.reconcile.plan_check import PlanCheck
from migration.reconcile.repair import TopicRepair
from migration.reconcile.spans import TimeSpan
from migration.topic_sides import TopicSides
from tests.e2e.test_engine_process import ADMIN_SECRET, EngineProcess
from tests.services.memory_kafka import (
    MemoryKafka,
    MemoryKafkaAdmin,
    MemoryKafkaProducer,
    MemoryKafkaReader,
    StoredKafkaRecord,
)

QUEUE, GROUP = 0, position_group("shop")
WHOLE = TimeSpan()
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = EngineProcess(tmp_path_factory.mktemp("engine") / "data")
    yield made
    made.process.kill()
    made.process.wait(10)


class BothSides:
    """A topic with one queue in a Kafka in memory and in the engine.

    Args:
        sent_before: bodies of messages that the engine has before the copy begins.
    """

    def __init__(self, engine, sent_before=(), cluster=None) -> None:
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.cluster = cluster or MemoryKafka()
        self.cluster.create(self.name, 1)
        self.admin = MemoryKafkaAdmin(self.cluster)
        self.link = AdminClient(engine.address, ADMIN_SECRET)
        assert self.link.call(TOPIC, encode_topics([(self.name, 1)]))[0] == OK
        self.engine = EnginePositions({"main": self.link})
        self.topic = self.admin.topics([self.name])[self.name]
        self.source = source_of("memory", self.topic, QUEUE)
        self.topic_id = copied.states(self.link, [(self.name, QUEUE)])[0].topic_id
        self.send(*sent_before)
        state = copied.accept(self.link, self.name, QUEUE, self.source, start=0, replaces=0, reason="a test")
        self.topic_id, self.number, self.next = state.topic_id, state.number, state.next
        self.definition = TopicDefinition(self.name, home="kafka:main", queues=1)

    def add(self, count, first=0, minute=1):
        """Records in Kafka, each in a minute of its own from this one on."""
        run = self.cluster.partitions[self.name][QUEUE]
        run += [
            StoredKafkaRecord(b"k", b"v%d" % at, [("a", b"1")], 60_000 * (minute + at - first))
            for at in range(first, first + count)
        ]

    def copy(self, *leaves_out):
        """As a copier does, but for these offsets."""
        run = self.cluster.partitions[self.name][QUEUE]
        kept = [at for at in range(self.next, len(run)) if at not in leaves_out]
        columns = [[run[at][column] for at in kept] for column in (3, 0, 1, 2)]
        records = Records(Partition(self.name, QUEUE), len(run), kept, *columns)
        target = PackTarget(self.name.encode(), self.topic.id.bytes, QUEUE, self.link.hello.log_id, self.topic_id)
        packed = pack(records, 0, target, 1 << 30)
        if packed.copied:
            batch = encode_packed_batch(self.topic_id, QUEUE, self.number, packed.data, packed.copied)
            (done,) = copied.copy(self.link, FSYNC, [CopyPart(self.source, self.next, batch)])
            assert done.code == OK
            self.next = done.next

    def send(self, *bodies):
        """Messages of the engine's own."""
        for body in bodies:
            record = encode_record(encode_struct(Message(topic=self.name, id=body.decode(), key="k", body=body)))
            batch = encode_batch(self.topic_id, QUEUE, [record])
            assert self.link.call(APPEND, encode_append(FSYNC, batch))[0] == OK

    def write(self, *bodies, skew_ms=0):
        """Messages as proxies write them to Kafka, by a clock that is ahead by `skew_ms`."""
        for body in bodies:
            key, value, headers = record_of(
                encode_struct(Message(topic=self.name, id=body.decode(), key="k", body=body)), None
            )
            record = StoredKafkaRecord(key, value, headers, SystemClock().now_ms() + skew_ms)
            self.cluster.partitions[self.name][QUEUE].append(record)

    def copy_back(self, offset, body, time_ms):
        """One own message of the engine as the copy back writes it."""
        key, value, headers = record_of(
            encode_struct(Message(topic=self.name, id=body.decode(), key="k", body=body)), None
        )
        mark = CopyMark(self.link.hello.log_id, self.topic_id, QUEUE, offset, content_hash(key, value))
        headers.append((COPY_HEADER, mark.encode()))
        self.cluster.partitions[self.name][QUEUE].append(StoredKafkaRecord(key, value, headers, time_ms))
        self.commit_back(offset + 1)

    def commit_back(self, position):
        note = note_of(EngineTopic(self.link.hello.log_id, self.topic_id), self.topic.id)
        self.cluster.committed[GROUP] = {Partition(self.name, QUEUE): CommittedPosition(position, note)}

    def open_reader(self):
        return MemoryKafkaReader(self.cluster, ReaderOptions(records_max=7))

    def compare(self, span=WHOLE, *, is_soaking=False):
        back = CopiedPositions(lambda: self.admin, self.open_reader, GROUP)
        finder = BoundsFinder(self.admin, self.engine, self.open_reader, back, span)
        self.bounds = finder.of(self.definition, has_copy_back=is_soaking)
        widened = finder.widened if self.bounds.is_dual else None
        found = TopicComparison(self.bounds, self.engine, self.open_reader, widened=widened).run()
        self.reads = FindingReads(self.bounds, self.admin, self.engine, self.open_reader)
        found.findings = self.reads.confirmed(found.findings)
        return found

    def repair(self, found, take=""):
        return TopicRepair(self.reads, lambda: MemoryKafkaProducer(self.cluster)).repair(found.findings, take)

    def positions(self, committed, *, is_cut=False):
        topic = CopiedTopic(self.name, 0, 1)
        sides = TopicSides(topic, self.topic, self.admin, self.engine, self.open_reader)
        (found,) = GroupPositions(sides, is_cut=is_cut).translated({QUEUE: committed})
        return found


@pytest.fixture
def both(engine):
    made = BothSides(engine)
    yield made
    made.link.close()


def kinds(found):
    return [(each.kind, each.kafka_offsets, each.engine_offsets) for each in found.findings]


def test_what_is_not_copied_yet_is_not_judged(both):
    both.add(20)
    both.copy()
    both.add(5, 20)
    found = both.compare()
    assert (found.kafka, found.engine, found.windows, found.differing) == (20, 20, 20, 0)


def test_a_copy_that_has_not_begun_is_told(both):
    both.definition = TopicDefinition(both.name, home="kafka:main", queues=1)
    other = BothSides.__new__(BothSides)
    other.__dict__.update(both.__dict__)
    other.name = f"{both.name}x"
    other.cluster.create(other.name, 1)
    assert both.link.call(TOPIC, encode_topics([(other.name, 1)]))[0] == OK
    other.definition = TopicDefinition(other.name, home="kafka:main", queues=1)
    with pytest.raises(PlanRefused, match="its copy has not begun"):
        other.compare()


def test_records_that_kafkas_retention_has_deleted_are_left_out_on_both_sides(both):
    both.add(20)
    both.copy(15)
    both.cluster.starts[Partition(both.name, QUEUE)] = 8
    found = both.compare()
    assert (found.kafka, found.engine) == (12, 11)
    assert kinds(found) == [(DiscrepancyKind.MISSING_IN_ENGINE, (15,), ())]
    both.cluster.starts[Partition(both.name, QUEUE)] = 16
    assert both.reads.confirmed(found.findings) == [], "it was deleted while it was compared"


def test_a_span_of_times_leaves_out_the_same_messages_on_both_sides(both):
    both.add(20)
    both.copy()
    found = both.compare(TimeSpan(from_ms=60_000 * 6))
    assert (found.kafka, found.engine, found.differing) == (15, 15, 0)
    found = both.compare(TimeSpan(from_ms=60_000 * 6, to_ms=60_000 * 11))
    assert (found.kafka, found.engine, found.differing) == (5, 5, 0)


def test_producers_whose_clocks_differ_by_an_hour_are_compared_by_the_minutes_of_their_records(both):
    now_ms = SystemClock().now_ms()
    for number in range(30):
        skew_ms = (0, -HOUR_MS, HOUR_MS)[number % 3]
        both.cluster.partitions[both.name][QUEUE].append(StoredKafkaRecord(b"k", b"v%d" % number, [], now_ms + skew_ms))
    both.copy()
    found = both.compare()
    assert (found.kafka, found.engine, found.windows, found.differing) == (30, 30, 3, 0)
    found = both.compare(TimeSpan(from_ms=now_ms - 600_000))
    assert found.kafka == found.engine >= 20 and found.differing == 0
    both.cluster.partitions[both.name][QUEUE] += [
        StoredKafkaRecord(b"k", b"more", [], now_ms + skew_ms) for skew_ms in (-HOUR_MS, HOUR_MS, 0)
    ]
    both.copy(31)
    assert kinds(both.compare()) == [(DiscrepancyKind.MISSING_IN_ENGINE, (31,), ())]


def test_a_stranger_in_the_engine_is_missing_in_kafka_and_a_second_copy_of_an_id_is_doubled(both):
    both.add(5)
    both.copy()
    both.send(b"stranger", b"stranger")
    found = both.compare()
    assert kinds(found) == [(DiscrepancyKind.MISSING_IN_KAFKA, (), (5, 6))]
    assert both.repair(found)[:2] == (0, 2)
    assert both.compare().differing == 0


def test_a_second_copy_that_has_another_time_is_doubled_and_not_missing(both):
    both.cluster.partitions[both.name][QUEUE].append(StoredKafkaRecord(b"k", b"one", [("penstock-id", b"one")], 60_000))
    both.add(3, 1)
    both.copy()
    both.send(b"one")
    found = both.compare()
    assert kinds(found) == [(DiscrepancyKind.DOUBLED_IN_ENGINE, (0,), (0, 4))]
    assert both.repair(found)[:2] == (0, 0), "a repair would double it in Kafka, too"


def test_a_repair_into_kafka_gives_back_what_the_copy_has_bent(both):
    odd = StoredKafkaRecord(b"\xff\x00", None, [("h", None), ("h", b"\xff")], 60_000)
    both.cluster.partitions[both.name][QUEUE].append(odd)
    both.add(3, 1)
    both.copy()
    both.cluster.partitions[both.name][QUEUE][0] = StoredKafkaRecord(b"k", b"v", [("penstock-id", b"new")], 60_000)
    found = both.compare()
    assert sorted(each.kind for each in found.findings) == ["missing in Kafka", "missing in the engine"]
    assert both.repair(found)[:2] == (1, 1)
    made = both.cluster.partitions[both.name][QUEUE][-1]
    assert (made.key, made.value, made.timestamp) == (odd.key, None, 60_000)
    assert [each for each in made.headers if each[0] == "h"] == odd.headers
    assert both.compare().differing == 0


def test_own_messages_are_judged_up_to_the_position_of_the_copy_back(both):
    both.add(4)
    both.copy()
    cut = CutRecord("shop", 1, 1, "main", str(both.topic.id), (4,), (4,))
    both.definition = TopicDefinition(both.name, queues=1, cut=cut)
    both.send(b"one", b"two", b"three")
    found = both.compare()
    assert (found.kafka, found.engine, found.differing) == (4, 4, 0), "without a copy back nothing is expected in Kafka"
    both.copy_back(4, b"one", 60_000)
    both.copy_back(5, b"two", 60_000)
    found = both.compare(is_soaking=True)
    assert (found.kafka, found.engine, found.counts.total()) == (6, 6, 0), "times differ, and ids do not"
    both.cluster.committed.clear()  # expired in Kafka
    assert both.compare(is_soaking=True).kafka == 6
    both.commit_back(7)
    assert kinds(both.compare(is_soaking=True)) == [(DiscrepancyKind.MISSING_IN_KAFKA, (), (6,))]


def test_a_message_that_was_copied_back_and_is_gone_in_the_engine_is_repaired_as_its_own(both):
    both.add(2)
    both.copy()
    both.copy_back(900, b"gone", 60_000)
    both.copy()
    found = both.compare()
    assert kinds(found) == [(DiscrepancyKind.MISSING_IN_ENGINE, (2,), ())]
    assert both.repair(found)[:2] == (1, 0)
    assert both.compare().differing == 0
    record, _ = both.reads.stored(QUEUE, 2)
    mark = parse_repair_mark(fields_of(record.message)[1][REPAIR_NAME.encode()])
    assert (mark.is_own, mark.offset) == (True, 900)


def test_a_record_that_kafkas_retention_deletes_while_it_is_compared_is_not_missing(both):
    both.add(5)
    both.copy()
    run = both.cluster.partitions[both.name][QUEUE]
    run[1] = run[1]._replace(headers=[("penstock-id", b"new")])
    found = both.compare()
    assert len(found.findings) == 2
    both.cluster.starts[Partition(both.name, QUEUE)] = 2
    assert both.reads.confirmed(found.findings) == []


def test_an_altered_message_is_written_again_by_an_operators_word_alone(both):
    both.add(3)
    both.copy()
    run = both.cluster.partitions[both.name][QUEUE]
    run[1] = run[1]._replace(value=b"other")
    found = both.compare()
    assert kinds(found) == [(DiscrepancyKind.ALTERED, (1,), (1,))]
    assert both.repair(found)[:2] == (0, 0)
    assert both.repair(found, "engine")[:2] == (0, 1)
    assert both.cluster.partitions[both.name][QUEUE][-1].value == b"v1"
    again = both.compare()
    assert [each.kind for each in again.findings] == [DiscrepancyKind.SUPERSEDED]


def test_positions_are_translated_over_holes_and_own_messages(both):
    both.add(6)
    both.copy(2, 3)
    assert (both.positions(0).engine, both.positions(0).checked) == (0, "after")
    assert (both.positions(4).engine, both.positions(6).engine) == (2, 4)
    assert both.positions(1).engine == 1
    both.send(b"one", b"two")
    both.copy_back(4, b"one", 60_000)
    both.copy_back(5, b"two", 60_000)
    assert [both.positions(at, is_cut=True).engine for at in (4, 6, 7, 8)] == [2, 4, 5, 6]


def test_positions_are_found_under_each_number_of_their_source(both):
    both.add(6)
    both.copy(5)
    state = copied.accept(both.link, both.name, QUEUE, both.source, start=6, replaces=both.number, reason="a test")
    both.number, both.next = state.number, state.next
    both.add(3, 6)
    both.copy()
    assert [both.positions(at).engine for at in (4, 6, 7)] == [4, 5, 6]
    with pytest.raises(PlanRefused, match="is not in the engine"):
        both.positions(5)


def test_a_position_is_refused_where_something_would_be_skipped(both):
    both.add(6)
    both.copy()
    both.add(2, 6)
    with pytest.raises(PlanRefused, match="the group has read up to offset 8, and 6 is copied"):
        both.positions(8)
    run = both.cluster.partitions[both.name][QUEUE]
    run[3] = run[3]._replace(value=b"other")
    with pytest.raises(PlanRefused, match="id or content differ"):
        both.positions(3)
    with pytest.raises(PlanRefused, match="id or content differ"):
        both.positions(4)


def test_a_position_in_front_of_a_record_that_is_missing_in_the_engine_is_refused(both):
    both.add(6)
    both.copy(3)
    with pytest.raises(PlanRefused, match="a record between the group's position and this one is not in the engine"):
        both.positions(3)
    assert both.positions(2).engine == 2


@pytest.fixture
def dual(both):
    """A topic of which three records were copied, and then proxies began to write to both sides."""
    both.add(3)
    both.copy()
    cut = CutRecord("shop", 1, 1, "main", str(both.topic.id), (3,), (3,))
    both.definition = replace(both.definition, secondary="engine", cut=cut)
    return both


def test_messages_that_proxies_wrote_to_both_sides_are_found_by_their_ids_in_any_order(dual):
    dual.write(b"a", b"b", b"c")
    dual.send(b"c", b"a", b"b")
    found = dual.compare()
    assert (found.kafka, found.engine, found.findings) == (6, 6, [])


def test_a_proxy_whose_clock_is_an_hour_off_makes_no_finding_and_hides_none(dual, monkeypatch):
    monkeypatch.setattr(comparison, "COPY_PAUSES_S", ())
    for skew_ms, name in ((HOUR_MS, b"ahead"), (-HOUR_MS, b"behind")):
        dual.write(name, name + b"-too", b"only-kafka-" + name, skew_ms=skew_ms)
        dual.send(name, name + b"-too")
    found = dual.compare()
    assert (found.kafka, found.engine) == (9, 7), "three of each are of before the pairing"
    assert sorted(kinds(found), key=lambda each: each[1]) == [
        (DiscrepancyKind.MISSING_IN_ENGINE, (at,), ()) for at in (5, 8)
    ]
    assert dual.repair(found)[:2] == (2, 0)
    assert dual.compare().findings == []


def test_what_one_side_of_a_dual_write_lacks_is_told_and_repaired(dual):
    dual.write(b"a", b"only-kafka")
    dual.send(b"a", b"only-engine")
    found = dual.compare()
    assert {(each.kind, each.id) for each in found.findings} == {
        (DiscrepancyKind.MISSING_IN_ENGINE, "only-kafka"),
        (DiscrepancyKind.MISSING_IN_KAFKA, "only-engine"),
    }
    assert dual.repair(found)[:2] == (1, 1)
    assert dual.compare().findings == []


def test_messages_on_their_way_while_both_sides_are_read_are_not_missing(dual, monkeypatch):
    dual.write(b"a")
    dual.send(b"a")
    widened = BoundsFinder.widened

    def late(finder, bounds, queue):
        dual.send(b"kafka-first")
        dual.write(b"engine-first")
        return widened(finder, bounds, queue)

    dual.write(b"kafka-first")
    dual.send(b"engine-first")
    monkeypatch.setattr(BoundsFinder, "widened", late)
    assert dual.compare().findings == []


def test_a_copy_that_comes_a_while_after_its_message_is_no_finding(dual, monkeypatch):
    pauses = []

    def pause(pause_s):
        pauses.append(pause_s)
        if len(pauses) == 2:
            dual.send(b"slow")

    dual.write(b"slow")
    monkeypatch.setattr(comparison.time, "sleep", pause)
    assert dual.compare().findings == []
    assert len(pauses) == 2


def test_what_retention_deleted_on_one_side_of_a_dual_write_is_not_judged(dual):
    dual.send(b"old", b"new")
    dual.write(b"old", b"new")
    dual.cluster.starts[Partition(dual.name, QUEUE)] = 4
    assert dual.compare().findings == []


class CountingAdmin(MemoryKafkaAdmin):
    questions = 0

    def topics(self, names=None):
        self.questions += 1
        return super().topics(names)

    def offsets(self, partitions, at):
        self.questions += 1
        return super().offsets(partitions, at)


def compare_together(engine, count):
    """Topics of one plan, of which the last one lacks a message in the engine: what is found, and what it took."""
    cluster, store = MemoryKafka(), MemoryConfigStore()
    sides = [BothSides(engine, cluster=cluster) for _ in range(count)]
    for each in sides:
        each.add(3)
        each.copy(*([1] if each is sides[-1] else []))
        store.put("topic", each.name, {"home": "kafka:main", "queues": 1, "id_window_ms": 0}, 0)
    plan = SimpleNamespace(name="shop", topic_names=[each.name for each in sides])
    admin, opened = CountingAdmin(cluster), []

    def open_reader():
        opened.append(MemoryKafkaReader(cluster, ReaderOptions(records_max=7)))
        return opened[-1]

    check = PlanCheck(
        Administrator(store, "cli:ann@desk", SystemClock()), plan, lambda: admin, sides[0].engine, open_reader, print
    )
    found = [each.compared for each in check.compare(WHOLE)]
    for each in sides:
        each.link.close()
    return [(each.topic, each.kafka, each.engine, sum(each.counts.values())) for each in found], sides, admin, opened


@pytest.mark.parametrize("count", [2, 30])
def test_topics_of_a_plan_are_read_together_and_what_differs_is_found_in_its_topic_alone(engine, count):
    found, sides, admin, opened = compare_together(engine, count)
    equal = [(each.name, 3, 3, 0) for each in sides]
    assert found == [*equal[:-1], (sides[-1].name, 3, 2, 1)]
    assert admin.questions <= 8, "for all topics, and for the finding"
    assert len(opened) <= 6, "one for all topics, and those of the drill-down"

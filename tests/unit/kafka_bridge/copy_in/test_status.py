"""The state of a copy from what the engine and Kafka say, and its standstills."""

from uuid import UUID

from common.clock import FakeClock
from common.kafka.base import KafkaTopic, ReaderOptions
from common.kafka.records import Partition
from engine.link.copy import ForeignSource, QueueSource, SourceState
from kafka_bridge.copy_in.copies import shown
from kafka_bridge.copy_in.core import PartitionBounds
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_in.messages import RecordPlace, message_id
from kafka_bridge.copy_in.standstills import WHOLE, Standstills
from kafka_bridge.copy_in.status import NOT_BEGUN, KafkaSide, status_of, with_records_left, without_last_copied
from kafka_bridge.source_identity import source_of
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaDriver

TOPIC = KafkaTopic("orders", UUID(int=7), 1, 3)


def side(start: int, end: int, stable: int) -> KafkaSide:
    return KafkaSide("cluster", TOPIC, {0: PartitionBounds(start, end)}, {0: stable})


def state(following: int, source: ForeignSource | None = None) -> SourceState:
    found = source or source_of("cluster", TOPIC, 0)
    return SourceState(12, 1, following, 0, [QueueSource(1, found, 0, 0, 0, "a test")])


def only(kafka: KafkaSide, *states: SourceState):
    (found,) = status_of("orders", kafka, dict(enumerate(states)))
    return found


def test_a_copy_that_has_everything_waits_for_nothing():
    assert only(side(0, 20, 20), state(20))[1:] == (20, 20, 0, "")


def test_a_copy_behind_says_by_how_many_records_at_most():
    found = only(side(0, 1020, 1020), state(20))
    assert (found.behind, found.waits_for) == (1000, "up to 1,000 records are to be copied")


def test_an_open_transaction_is_named_as_what_a_copy_waits_for():
    assert only(side(0, 30, 20), state(20)).waits_for.startswith(
        "an open transaction of a producer: records from offset 20"
    )
    assert only(side(0, 30, 25), state(20)).waits_for == "up to 5 records are to be copied"


def test_a_copy_that_has_not_begun_or_has_stopped_says_why():
    assert only(side(5, 30, 30)) == (0, 5, 30, 25, NOT_BEGUN)
    assert only(side(5, 30, 30), SourceState(12, 0, 0, 0, [])).waits_for == NOT_BEGUN
    assert "made again" in only(side(0, 30, 30), state(20, ForeignSource(b"cluster/other", 0))).waits_for
    assert "it begins at 25" in only(side(25, 30, 30), state(20)).waits_for


def test_of_a_copy_whose_offsets_belong_to_other_records_it_is_not_known_how_far_it_is_behind():
    assert only(side(0, 10, 10), state(20, ForeignSource(b"cluster/other", 0))).behind is None
    assert only(side(0, 10, 10), state(20)).behind is None, "Kafka has lost records"
    assert only(side(25, 30, 30), state(20)).behind == 10, "a bound, as for any copy"


def test_a_source_fits_the_engines_identity():
    assert len(source_of("x" * 22, TOPIC, 0).identity) <= 64


def test_a_standstill_keeps_the_time_of_its_beginning_while_its_sentence_changes():
    clock = FakeClock(1000)
    found = Standstills(clock)
    assert found.note(3, "away") and not found.note(3, "away")
    clock.advance(5000)
    assert found.note(3, "refused")
    assert [(each.partition, each.since_ms, each.sentence) for each in found.all] == [(3, 1000, "refused")]
    found.note(WHOLE, "no cluster")
    assert shown(found.all) == "stands still since 6000 (Unix ms): no cluster (and 1 more)"
    found.clear(3)
    found.clear(WHOLE)
    assert found.all == []


def test_offsets_before_an_end_count_as_left_only_where_there_are_records():
    kafka = MemoryKafka(orders=3)
    for partition in range(3):
        kafka.add("orders", partition, b"a", b"b", b"c")
    reader = MemoryKafkaDriver(kafka).reader(None, ReaderOptions())
    full, read, beyond = (Partition("orders", number) for number in range(3))
    positions, ends = {full: 1, read: 3, beyond: 2}, {full: 3, read: 3, beyond: 2}
    assert with_records_left(reader, positions, ends, 5.0, "orders") == {full: ""}
    assert with_records_left(reader, {full: 3}, {full: 9}, 0.01, "orders") == {full: ""}, "not read counts as left"
    assert with_records_left(reader, {}, {}, 0.01, "orders") == {}


def test_a_next_record_that_the_engine_cannot_store_is_what_a_copy_waits_for():
    kafka, partition = MemoryKafka(orders=1), Partition("orders", 0)
    kafka.add("orders", 0, b"a")
    kafka.add("orders", 0, b"large", headers=[("h", b"x" * 40_000)])
    kafka.add("orders", 0, b"c")
    reader = MemoryKafkaDriver(kafka).reader(None, ReaderOptions())
    (told,) = with_records_left(reader, {partition: 1}, {partition: 3}, 5.0, "shop.orders").values()
    assert told.startswith('kafka topic "orders" partition 0 offset 1: its headers and its key need 40,001 bytes')
    assert "penstock kafka accept shop.orders --partition 0 --skip 1" in told
    assert with_records_left(reader, {partition: 0}, {partition: 3}, 5.0, "shop.orders") == {partition: ""}


def test_another_record_in_the_place_of_the_one_that_was_copied_last_is_told():
    kafka, partition = MemoryKafka(orders=1), Partition("orders", 0)
    kafka.add("orders", 0, b"a", b"b", b"c")
    reader = MemoryKafkaDriver(kafka).reader(None, ReaderOptions())
    time_ms = kafka.partitions["orders"][0][1].timestamp
    shown = message_id([], RecordPlace(TOPIC.id.bytes, 0, 1))
    for body, start, lost in ((b"b", 0, set()), (b"x", 0, {partition}), (b"x", 2, set())):
        last = {partition: LastCopied(1, shown, b"k", body, time_ms)}
        assert without_last_copied(reader, last, side(start, 3, 3), 1.0) == lost

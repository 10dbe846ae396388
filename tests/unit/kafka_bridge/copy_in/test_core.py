"""Decisions of a copy from Kafka: its first step, what it appends, and what a refused part means."""

import pytest

from common.kafka.records import Partition, Records
from engine.link.codes import OK, SOURCE_MOVED
from engine.link.copy import Copied, ForeignSource, QueueSource, SourceState
from engine.link.record import read_record
from kafka_bridge.copy_in import core
from kafka_bridge.copy_in.core import After, Begin, Continue, Halt, PartitionBounds, PartitionCopy, first_step
from tests.unit.kafka_bridge.copy_in.foreign_records import TARGET, ForeignRecord, columns

PARTITION = Partition("orders", 3)
SOURCE, OTHER = ForeignSource(b"cluster/topic", 3), ForeignSource(b"cluster/another", 3)
PLAIN = ForeignRecord(b"k", b"v" * 100, (), 5)
LARGE = ForeignRecord(None, b"", [("a", b"x" * 32_768)], 5)


def state(following: int, source: ForeignSource = SOURCE, number: int = 2) -> SourceState:
    return SourceState(12, number, following, 50, [QueueSource(number, source, 0, 0, 0, "a test")])


NO_SOURCE = SourceState(12, 0, 0, 0, [])


def step(found: SourceState, start: int, end: int, begin: int = 0):
    return first_step("inbox", PARTITION, found, SOURCE, PartitionBounds(start, end), begin)


def test_a_queue_without_a_source_gets_one_from_its_first_offset_on():
    assert step(NO_SOURCE, 0, 9) == Begin(0)
    assert step(NO_SOURCE, 4, 9) == Begin(4), "what Kafka has deleted cannot be copied"
    assert step(NO_SOURCE, 4, 9, begin=7) == Begin(7)
    assert step(NO_SOURCE, 0, 9, begin=12) == Begin(12), "an offset that was recorded is not changed"


@pytest.mark.parametrize(("start", "end"), [(0, 30), (20, 20), (0, 20)])
def test_a_copy_goes_on_where_the_engine_is(start, end):
    assert step(state(20), start, end) == Continue(20)


@pytest.mark.parametrize(
    ("found", "start", "end", "sentences"),
    [
        (state(20, OTHER), 0, 30, ["was deleted and made again", "--partition 3 --reason TEXT"]),
        (state(20), 0, 19, ["it ends at 19, but was copied up to 20", "--start 19 --reason"]),
        (state(20), 25, 30, ["it begins at 25, but was copied up to 20", "up to 5 records are lost"]),
    ],
)
def test_a_copy_whose_source_does_not_fit_stops_and_names_partition_and_command(found, start, end, sentences):
    halted = step(found, start, end)
    assert isinstance(halted, Halt)
    for sentence in ('kafka topic "orders" partition 3: ', "`penstock kafka accept inbox --partition 3", *sentences):
        assert sentence in halted.sentence


@pytest.fixture
def copy():
    return PartitionCopy(PARTITION, SOURCE, state(20), TARGET)


def offsets_of(part) -> list[int | None]:
    at, found = 48, []
    for _ in range(int.from_bytes(part.batch[24:28], "little")):
        record, at = read_record(part.batch, at)
        found.append(record.source_offset)
    return found


def test_a_part_says_which_next_offset_the_copier_knows_and_moves_it_by_its_answer(copy):
    copy.take(columns([PLAIN] * 3, 22, step=2))
    part = copy.part()
    assert (part.source, part.next, part.topic_id, offsets_of(part)) == (SOURCE, 20, 12, [22, 24, 26])
    assert copy.settle(Copied(OK, 2, 27, 50)) is After.GO_ON
    assert (copy.next, copy.position, copy.stored, copy.is_idle, copy.part()) == (27, 28, 3, True, None)
    copy.take(columns([PLAIN], 30))
    assert copy.part().next == 27


def test_a_fetch_is_appended_in_parts_of_bounded_size_in_order(copy, monkeypatch):
    monkeypatch.setattr(core, "BATCH_BYTES_MAX", 300)
    copy.take(columns([PLAIN] * 5, 20))
    copy.take(columns([PLAIN] * 2, 25))
    found = []
    while (part := copy.part()) is not None:
        found += offsets_of(part)
        copy.settle(Copied(OK, 2, found[-1] + 1, 0))
    assert found == [20, 21, 22, 23, 24, 25, 26] and copy.is_idle and copy.stored == 7


def test_records_that_are_not_copied_move_the_position_alone(copy):
    copy.take(Records(PARTITION, 33, (), (), (), (), ()))
    assert (copy.position, copy.next, copy.part(), copy.is_idle) == (33, 20, None, True)


@pytest.mark.parametrize("code", [SOURCE_MOVED, 205, 101])
def test_a_refused_part_is_not_sent_again_before_the_engine_was_asked(copy, code):
    copy.take(columns([PLAIN], 20))
    copy.part()
    assert copy.settle(Copied(code, 2, 40, 0)) is After.ASK
    assert (copy.next, copy.stored) == (20, 0)


def test_the_copy_ends_before_a_record_that_is_too_large_and_names_its_place(copy):
    copy.take(columns([PLAIN, LARGE, PLAIN], 20))
    assert offsets_of(copy.part()) == [20]
    copy.settle(Copied(OK, 2, 21, 0))
    assert copy.part() is None and not copy.is_idle
    assert 'kafka topic "orders" partition 3 offset 21: ' in copy.fault and "--skip 21 --reason TEXT" in copy.fault
    copy.take(columns([PLAIN], 23))
    assert copy.part() is None

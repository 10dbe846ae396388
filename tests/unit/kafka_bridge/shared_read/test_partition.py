"""A partition that the group has given to the bridge: what is stored, what may be committed, what is never lost."""

import pytest

from common.kafka.records import Partition, Records
from engine.client.backlog import QueueBacklog
from engine.link.codes import OK, SOURCE_MOVED
from engine.link.copy import Copied
from kafka_bridge.shared_read.partition import SharedPartition, beginning_at
from tests.unit.kafka_bridge.copy_in.foreign_records import TARGET, columns
from tests.unit.kafka_bridge.copy_in.test_core import LARGE, PLAIN, SOURCE, offsets_of, state

PARTITION = Partition("orders", 3)
EMPTY = QueueBacklog(0, 0)


@pytest.fixture
def part():
    found = SharedPartition(PARTITION)
    found.ahead.see(EMPTY)
    return found


def store(part, following):
    part.settle(Copied(OK, 2, following, 0))


def test_nothing_may_be_committed_before_it_is_stored(part):
    assert part.position is None
    part.take(columns([PLAIN] * 3, 20))
    assert part.position is None and not part.is_idle
    part.begin(SOURCE, state(20), TARGET)
    assert part.position == 20
    assert offsets_of(part.part()) == [20, 21, 22]
    assert part.position == 20 and not part.is_idle, "it is on its way"
    store(part, 23)
    assert (part.position, part.is_idle, part.stored) == (23, True, 3)


def test_the_position_is_after_what_holds_nothing_to_copy(part):
    part.take(Records(PARTITION, 33, (), (), (), (), ()))
    assert (part.position, part.is_idle) == (33, True)


def test_what_the_engine_has_is_not_stored_again_and_may_be_committed(part):
    part.take(columns([PLAIN] * 5, 20))
    part.begin(SOURCE, state(23), TARGET)
    assert part.position == 23 and part.repeated == 3
    assert offsets_of(part.part()) == [23, 24]
    store(part, 25)
    assert (part.position, part.stored) == (25, 2)


def test_where_the_engine_has_all_of_it_nothing_is_left(part):
    part.take(columns([PLAIN] * 5, 20))
    part.begin(SOURCE, state(40), TARGET)
    assert part.part() is None
    assert (part.is_idle, part.position, part.repeated) == (True, 25, 5)


def test_what_other_members_have_read_between_is_left_out_and_never_committed_backwards(part):
    part.take(columns([PLAIN] * 2, 50))
    part.begin(SOURCE, state(20), TARGET)
    assert part.position == 50
    found = part.part()
    assert (found.next, offsets_of(found)) == (20, [50, 51])


@pytest.mark.parametrize("was_stored", [True, False])
def test_after_a_lost_answer_the_engine_is_asked_and_nothing_is_lost_or_twice(part, was_stored):
    part.take(columns([PLAIN] * 3, 20))
    part.begin(SOURCE, state(20), TARGET)
    part.part()
    part.forget()
    assert part.position is None and not part.is_begun
    part.begin(SOURCE, state(23 if was_stored else 20), TARGET)
    again = part.part()
    assert (again is None) is was_stored and (again is None or offsets_of(again) == [20, 21, 22])
    if again is not None:
        store(part, 23)
    assert (part.position, part.is_idle, part.repeated) == (23, True, 0)


def test_a_refused_part_is_asked_for(part):
    part.take(columns([PLAIN], 20))
    part.begin(SOURCE, state(20), TARGET)
    part.part()
    part.settle(Copied(SOURCE_MOVED, 2, 21, 0))
    assert not part.is_begun and not part.is_idle and part.position is None


def test_no_part_is_made_while_the_group_has_too_much_to_acknowledge(part):
    part.ahead.see(QueueBacklog(900, 9_000))
    part.take(columns([PLAIN], 20))
    part.begin(SOURCE, state(20), TARGET)
    assert part.part() is None and not part.is_idle
    part.ahead.see(QueueBacklog(800, 8_000))
    assert offsets_of(part.part()) == [20]


def test_a_record_that_is_too_large_stops_the_partition_and_what_is_before_it_may_be_committed(part):
    part.take(columns([PLAIN, LARGE, PLAIN], 20))
    part.begin(SOURCE, state(20), TARGET)
    assert offsets_of(part.part()) == [20]
    store(part, 21)
    assert part.part() is None and not part.is_idle and part.position == 21
    assert "offset 21: its headers" in part.fault and "by Kafka's own tool" in part.fault


def test_records_begin_at_an_offset_in_all_columns():
    found = beginning_at(columns([PLAIN, LARGE, PLAIN], 20, step=2), 21)
    assert found == columns([LARGE, PLAIN], 22, step=2)
    assert beginning_at(found, 5) is found and beginning_at(found, 99).offsets == []

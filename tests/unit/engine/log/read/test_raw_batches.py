"""The bytes of the log that a slave gets: whole batches, segment by segment."""

from random import Random

import pytest
from lives import live

from engine.errors import CorruptionError, LogError


def shipped(machine, position: int, random: Random) -> dict[int, bytes]:
    """Bytes by position, from one on, as a slave would get them."""
    found: dict[int, bytes] = {}
    while position != machine.log.end_position:
        data = machine.log.raw.read(position, random.choice((1, 100, 1_000, 100_000)))
        if data:
            found[position] = data
            position += len(data)
        else:
            position = machine.log.raw.next_segment(position)[0] + 64
    return found


@pytest.mark.parametrize("seed", range(4))
def test_reads_of_any_size_give_all_batches_of_all_segments(any_machine, seed):
    live(any_machine, Random(seed), 80)
    by_position = shipped(any_machine, 64, Random(seed))
    for position, data in by_position.items():
        base = max(each for each in (*any_machine.log.segments.sealed.bases, *bases(any_machine)) if each < position)
        assert any_machine.log.segments.at(base).file.read_at(len(data), position - base) == data
    assert any_machine.log.raw.read(any_machine.log.end_position, 1000) == b""
    with pytest.raises(LogError, match="no segment follows"):
        any_machine.log.raw.next_segment(any_machine.log.end_position)


def bases(machine) -> list[int]:
    return [segment.base for segment in (*machine.log.segments.sealing, machine.log.segments.active)]


def test_a_batch_above_the_limit_comes_whole_and_alone(machine):
    position = machine.log.end_position
    machine.append(1, 0, bytes(3000))
    machine.append(1, 0, bytes(10))
    data = machine.log.raw.read(position, 100)
    assert 3000 < len(data) < 3100
    assert machine.log.raw.read(position + len(data), 1 << 20) and len(data) % 8 == 0


def test_where_no_batch_begins_nothing_is_sent(machine):
    machine.append(1, 0, bytes(300))
    with pytest.raises(CorruptionError, match="no batch begins here"):
        machine.log.raw.read(64 + 8, 1000)


def test_a_position_whose_segment_is_gone_is_refused(machine):
    while machine.log.segments.active.base < 3 * 8192:
        machine.append(1, 0, bytes(2000))
    machine.log.segments.sealed.bases.discard(0)
    with pytest.raises(LogError, match="position 100: its segment is deleted"):
        machine.log.raw.read(100, 1000)


def test_the_time_of_the_first_batch_from_a_position_on_is_told_also_across_segments(machine):
    """At a batch, at the end of a full segment, and at the log's end."""
    position = machine.log.end_position
    machine.append(1, 0, bytes(100))
    assert machine.log.raw.stored_at_ms(position) == machine.env.now_ms() > 0
    while machine.log.segments.active.base == 0:
        machine.append(1, 0, bytes(700))
    end_of_full = machine.log.segments.active.header.previous_end
    assert machine.log.raw.stored_at_ms(end_of_full) == machine.env.now_ms()
    assert machine.log.raw.stored_at_ms(machine.log.end_position) == 0

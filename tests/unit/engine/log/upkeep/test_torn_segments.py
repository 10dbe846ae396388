"""A full segment that lost its unsynced end in a power cut, while bytes of the next segment reached the disk."""

import errno
import logging
from dataclasses import replace

import pytest
from machine import Machine

from engine.env.simulated import SimulatedEnv
from engine.env.simulated_content import SECTOR
from engine.errors import CorruptionError
from engine.log.format import END_UNKNOWN, NOT_BEGUN, parse_segment_header

HEADER = 64


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Damage is logged as errors."""
    caplog.set_level(logging.CRITICAL)


def hold_sealing(machine: Machine) -> None:
    """Have full segments neither synced nor indexed from now on."""
    machine.log.writer._jobs._sealer.submit = lambda job: None


def fill(machine: Machine, base: int) -> list[bytes]:
    """Append until the segment at `base` is the active one; returns the bodies of queue (1, 0)."""
    bodies = []
    while machine.log.segments.active.base < base:
        bodies.append(b"%d" % len(bodies) * 700)
        machine.append(1, 0, bodies[-1])
    return bodies


def header_of(machine: Machine, base: int):
    path = f"{machine.directory}/log/{base:020d}.seg"
    return parse_segment_header(bytes(machine.env.files[path].seen[:HEADER]), path)


def tear(machine: Machine, lost=lambda: None) -> tuple[int, int]:
    """Lose the end of the first segment, and keep the second one. Returns the positions between which bytes are lost."""
    hold_sealing(machine)
    machine.append(1, 0, b"kept")
    assert machine.durable()
    start = machine.log.end_position
    lost()
    fill(machine, machine.log.segments.active.next_base)
    active = machine.log.segments.active
    end = active.base - 8192 + active.header.previous_end
    machine.env.files[active.path].sync()
    machine.crash()
    return start, end


def damage_of(log) -> list[tuple[int, int]]:
    return [(each.position, each.bytes_lost) for each in log.damage]


def test_the_missing_end_is_damage_and_what_follows_is_served(machine):
    start, end = tear(machine)
    assert start < end and damage_of(machine.log) == [(start, end - start)]
    bounds = machine.log.bounds(1, 0)
    (piece,) = machine.log.read(1, 0, bounds[1] - 1, 1, 1 << 20)
    assert piece.first_offset == bounds[1] - 1 and machine.log.end_position > 8192
    assert machine.append(1, 0, b"next") == bounds[1]


def test_the_id_of_a_topic_whose_record_is_lost_there_goes_to_no_other_topic(machine):
    made = []

    def create() -> None:
        made.extend(machine.log.create_topics([("lost", 1)]))

    tear(machine, create)
    (other,) = machine.log.create_topics([("other", 1)])
    assert machine.log.topic("lost") is None and other.id > made[0].id


def test_it_is_damage_at_every_start_until_the_checkpoint_has_passed_it(machine):
    start, end = tear(machine)
    for _ in range(2):
        machine.kill()
        assert damage_of(machine.log) == [(start, end - start)]
    machine.reopen()
    machine.log.checkpoint()
    machine.kill()
    assert machine.log.damage == []


def test_a_loss_of_whole_segments_is_damage_in_each(machine):
    hold_sealing(machine)
    machine.append(1, 0, b"kept")
    assert machine.durable()
    start = machine.log.end_position
    fill(machine, 16384)
    end_at = machine.log.segments.active.header.previous_end
    machine.env.files[machine.log.segments.active.path].sync()
    machine.crash()
    assert damage_of(machine.log) == [(start, 0), (8192 + HEADER, end_at - HEADER)]


def test_when_the_next_segment_lost_its_beginning_nothing_tells_the_end(machine):
    hold_sealing(machine)
    machine.append(1, 0, b"kept")
    assert machine.durable()
    start = machine.log.end_position
    fill(machine, 8192)
    machine.append(1, 0, b"x" * 700)
    content = machine.env.files[machine.log.segments.active.path]
    first = bytes(content.durable[:SECTOR])
    content.sync()
    content.durable[:SECTOR] = content.seen[:SECTOR] = first
    assert header_of(machine, 8192).previous_end == NOT_BEGUN
    machine.crash()
    assert damage_of(machine.log)[0] == (start, 0)


def test_a_segment_of_an_earlier_version_counts_as_whole(machine):
    hold_sealing(machine)
    fill(machine, 8192)
    content = machine.env.files[machine.log.segments.active.path]
    content.sync()
    content.durable[:HEADER] = replace(header_of(machine, 8192), previous_end=END_UNKNOWN).pack()
    machine.crash()
    assert machine.log.segments.active.base == 8192 and machine.log.damage == []


def test_a_power_cut_that_takes_whatever_was_not_synced_is_no_damage(machine):
    hold_sealing(machine)
    fill(machine, 8192)
    machine.crash()
    assert machine.log.damage == [] and machine.log.segments.active.base == 0
    assert machine.log.writer.roller.prepared.header.previous_end == NOT_BEGUN


def test_a_prepared_segment_forgets_the_end_of_a_roll_that_was_undone(machine):
    """The first batch of the next segment was never written, and the log goes on in the one before."""
    hold_sealing(machine)
    fill(machine, 8192)
    content = machine.env.files[machine.log.segments.active.path]
    content.seen[HEADER:] = bytes(len(content.seen) - HEADER)
    content.sync()
    machine.kill()
    assert machine.log.segments.active.base == 0 and header_of(machine, 8192).previous_end == NOT_BEGUN
    fill(machine, 8192)
    assert header_of(machine, 8192).previous_end == machine.log.segments.sealed.get(0).end_at
    machine.env.stores.clear()
    machine.kill()
    assert machine.log.damage == []


def test_what_a_power_cut_has_left_of_a_roll_is_no_damage_later(machine):
    """Pieces of the first batches, none of them whole; the log goes on in the segment before."""
    hold_sealing(machine)
    assert machine.durable()
    fill(machine, 8192)
    content = machine.env.files[machine.log.segments.active.path]
    content.durable[8170:8186] = b"piece of a batch"
    machine.crash()
    assert machine.log.segments.active.base == 0
    fill(machine, 16384)
    machine.durable()
    machine.env.stores.clear()
    for path in [path for path in machine.env.files if path.endswith(".idx")]:
        del machine.env.files[path]
    machine.kill()
    assert machine.log.damage == []


def test_an_empty_segment_after_a_checkpoint_gets_its_header_before_the_log_goes_on_in_it(machine):
    """The power cut took all of it, but not the segment before, which was sealed."""
    fill(machine, 8192)
    end_at = machine.log.segments.sealed.get(0).end_at
    machine.crash()
    assert machine.log.segments.active.base == 8192 and machine.log.end_position == 8192 + HEADER
    assert header_of(machine, 8192).previous_end == end_at
    machine.append(1, 0, b"more")
    assert machine.durable()
    machine.env.stores.clear()
    machine.crash()
    assert machine.log.damage == []


def test_a_slave_gets_no_bytes_from_above_the_missing_end(machine):
    start, _ = tear(machine)
    assert machine.log.raw.read(start, 1000) == b""
    with pytest.raises(CorruptionError, match="the end of the segment is missing"):
        machine.log.raw.next_segment(start)
    assert machine.log.segments.suspects.all() == [0]


def test_a_disk_without_room_for_the_header_refuses_the_roll_until_there_is(form):
    machine = Machine(form, SimulatedEnv(), "/data")
    while machine.log.end_position < 8192 - 1500:
        machine.append(1, 0, b"x" * 700)
    machine.env.fail("write", errno.ENOSPC)
    ((code, _),) = machine.log.append(machine.batch(1, 0, [b"y" * 2000]), 1, 1)
    assert code == 205 and machine.log.segments.active.base == 0
    machine.env.heal()
    machine.append(1, 0, b"y" * 2000)
    assert machine.log.segments.active.base == 8192
    machine.close()

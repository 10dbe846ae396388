"""Which sealed segments are open, with their indexes in memory: what is read, within limits."""

import os
from contextlib import suppress

import pytest
from machine import Machine
from pair import Pair

from engine.env.real import RealEnv
from engine.env.simulated import SimulatedEnv, SimulatedFile
from engine.log.format import segment_name
from engine.log.segment.segment import UNREAD_MAX

SEGMENTS = 20


@pytest.fixture
def pair(form, tmp_path):
    made = Pair(form, RealEnv(), RealEnv(), str(tmp_path / "master"), str(tmp_path / "slave"))
    yield made
    made.close()


def test_a_log_that_nothing_reads_keeps_no_more_segments_open_than_one_that_is_read(form, monkeypatch):
    closed = set()
    monkeypatch.setattr(SimulatedFile, "close", lambda self: closed.add(self.path))
    m = Machine(form, SimulatedEnv(), "/data", sealed_open_max=2)
    for _ in range(2):
        fill(m)
        m.env.clock_ms += m.log.retention.step()
    m.env.clock_ms += 10_000
    m.log.retention.step()
    assert len(closed & sealed_paths(m)) >= 2 * SEGMENTS - 3  # two and the oldest, which is looked at again and again
    m.close()


def test_a_slave_keeps_of_what_nothing_has_read_there_the_newest_segments_open(pair):
    fill_both(pair)
    assert len(open_segments(pair.master)) > SEGMENTS // 2
    assert len(open_segments(pair.slave)) <= UNREAD_MAX + 1  # one may have been sealed after the last roll


def test_a_slave_keeps_the_segments_open_that_were_read(pair):
    fill_both(pair)
    bodies = pair.slave.bodies(1, 0)
    read = open_segments(pair.slave)  # the newest may have been read before it was sealed
    assert len(bodies) >= SEGMENTS and len(read) >= SEGMENTS - UNREAD_MAX
    fill_both(pair)
    assert set(read[:-UNREAD_MAX]) <= set(open_segments(pair.slave))
    assert len(pair.slave.bodies(1, 0)) == 2 * len(bodies)


def test_a_slave_that_leads_keeps_what_it_seals_open_as_any_master(pair):
    fill_both(pair)
    pair.slave.log.lead(lambda position, callback: callback())
    fill(pair.slave)
    pair.slave.log.retention.step()
    assert len(open_segments(pair.slave)) > SEGMENTS // 2


def fill(machine):
    """Append until so many more segments are sealed."""
    ends = len(machine.log.segments.sealed.bases) + SEGMENTS
    while len(machine.log.segments.sealed.bases) < ends:
        machine.append(1, 0, bytes(4000))
        machine.log.checkpoint()


def fill_both(pair):
    """As fill, in pieces that the slave takes at once."""
    ends = len(pair.master.log.segments.sealed.bases) + SEGMENTS
    while len(pair.master.log.segments.sealed.bases) < ends:
        pair.master.append(1, 0, bytes(4000))
        pair.master.log.checkpoint()
        while pair.slave.log.end_position != pair.master.log.end_position:
            position, data = pair.next_bytes(100_000)
            if data:
                pair.slave.log.follower.apply(position, data)
            else:
                pair.slave.log.checkpoint()  # what is full is sealed
                pair.slave.log.follower.begin_segment(pair.master.log.raw.next_segment(position)[1])


def open_segments(machine):
    """Paths of the sealed segments that the process has open, oldest first."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(found & sealed_paths(machine))


def sealed_paths(machine):
    return {f"{machine.directory}/log/{segment_name(base)}" for base in machine.log.segments.sealed.bases}

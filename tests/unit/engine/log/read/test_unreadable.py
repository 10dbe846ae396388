"""Batches that the disk cannot read: what they cost readers, and for how long."""

import errno
import struct

import pytest

from engine.delivery.delivery import Delivery
from engine.delivery.pull import PullRequest
from engine.delivery.receipt import receipt_key
from engine.errors import CorruptionError, UnreadableError
from engine.log.read.unreadable import LASTS_MS, LOST_MS, RETRY_MS


class BadSector:
    """Makes one byte of the active segment's file unreadable; `tries` counts reads that met it."""

    def __init__(self, machine, at: int) -> None:
        self.tries = 0
        self._file = machine.log.segments.active.file
        read_at = self._file.read_at

        def read(size: int, start: int) -> bytes:
            if start <= at < start + size:
                self.tries += 1
                raise OSError(errno.EIO, "Input/output error")
            return read_at(size, start)

        self._file.read_at = read

    def heal(self) -> None:
        del self._file.read_at


@pytest.fixture
def bad(machine) -> BadSector:
    """The second of three batches of queue 0 lies on a bad sector; the third has two records."""
    machine.append(1, 0, b"a")
    at = machine.log.end_position + 60
    machine.append(1, 0, b"b" * 100)
    machine.append(1, 0, b"c", b"d")
    machine.append(1, 1, b"other queue")
    return BadSector(machine, at)


def records(machine, offset: int) -> list[tuple[int, int]]:
    return [(piece.first_offset, piece.count) for piece in machine.log.read(1, 0, offset, 100, 1 << 20)]


def test_a_bad_sector_costs_its_batch_alone(machine, bad):
    assert records(machine, 0) == [(0, 1)]
    with pytest.raises(UnreadableError, match="offset=1"):
        records(machine, 1)
    assert records(machine, 2) == [(2, 2)]
    assert machine.bodies(1, 1) == [b"other queue"]


def test_the_queue_is_woken_for_another_try_and_the_disk_is_left_alone_until_then(machine, bad):
    with pytest.raises(UnreadableError):
        records(machine, 1)
    tries = bad.tries
    with pytest.raises(UnreadableError):
        records(machine, 1)
    assert bad.tries == tries
    assert machine.log.take_woken() == [] and machine.log.is_fetching(1, 0)
    machine.env.clock_ms += RETRY_MS
    assert machine.log.take_woken() == [(1, 0)]
    bad.heal()
    assert records(machine, 1) == [(1, 1), (2, 2)]
    assert machine.log.reader.unreadable.places == {}


def test_an_error_that_lasts_counts_as_damage_and_is_tried_again_later(machine, bad):
    begun = machine.env.clock_ms
    with pytest.raises(CorruptionError) as damage:
        while machine.env.clock_ms < begun + 2 * LASTS_MS:
            with pytest.raises(UnreadableError):
                records(machine, 1)
            machine.env.clock_ms += 1000
    assert machine.env.clock_ms - begun >= LASTS_MS
    assert damage.value.next_offset == 2
    assert bad.tries < 20
    assert machine.log.reader.unreadable.lost == 1
    with pytest.raises(CorruptionError):  # the next group steps over it at once
        records(machine, 1)
    bad.heal()
    machine.env.clock_ms += LOST_MS
    assert records(machine, 1) == [(1, 1), (2, 2)]


def test_a_segment_that_cannot_be_opened_is_tried_again(machine):
    for _ in range(30):
        machine.append(1, 0, b"x" * 1000)
    machine.log.checkpoint()
    machine.reopen()
    machine.env.fail("open", errno.EMFILE)
    with pytest.raises(UnreadableError, match="cannot be read now"):
        records(machine, 0)
    machine.env.heal()
    machine.env.clock_ms += RETRY_MS
    assert machine.log.take_woken() == [(1, 0)]
    assert len(machine.bodies(1, 0)) == 30


@pytest.mark.parametrize("refused", [OSError(errno.EIO, "a bad block")])
def test_a_view_that_cannot_be_read_refuses_a_queues_bounds_and_wakes_it_later(machine, refused):
    machine.append(1, 0, b"a")
    machine.reopen()

    def fail(*_):
        raise refused

    machine.log._view.stored_end = fail
    with pytest.raises(UnreadableError):
        machine.log.bounds(1, 3)
    del machine.log._view.stored_end
    machine.env.clock_ms += RETRY_MS
    assert machine.log.take_woken() == [(1, 3)]
    assert machine.log.bounds(1, 3) == (0, 0)


def test_a_pull_gets_what_other_queues_have_and_the_batch_once_it_can_be_read(machine, bad):
    log, env = machine.log, machine.env
    delivery = Delivery(log, receipt_key(log, env.random_bytes), env.now_ms)
    key = struct.pack("<H", 5) + b"first" + struct.pack("<I", 4)

    def pull() -> None:
        for _ in range(4):  # one pull may stop early, for the sake of appends
            request = PullRequest("group", [("first", 4)], key, 10, 1 << 20, 0, 600_000, 0, [])
            delivery.pull(request, env.clock_ms, lambda pull: None)

    pull()
    assert delivery.counts.deliveries == 2
    bad.heal()
    env.clock_ms += RETRY_MS
    delivery.on_woken(log.take_woken(), env.clock_ms)
    pull()
    assert delivery.counts.deliveries == 5
    assert delivery.counts.redeliveries == 0

"""Epochs in the log: a master begins one, every log that has its record knows it, and followers append nothing."""

import errno
from random import Random

import pytest
from lives import live
from pair import Pair, cut

from engine.env.simulated import SimulatedEnv
from engine.errors import DiskFullError, EpochOrderError, NotMasterError
from engine.log.epochs import EpochStart, common_position

FOLLOWS = 'this broker follows "b"'


@pytest.fixture
def pair(form):
    made = Pair(form, SimulatedEnv(), SimulatedEnv())
    yield made
    made.close()


def starts(machine) -> tuple[EpochStart, ...]:
    return machine.log.epochs.history().starts


def epochs_of_batches(machine) -> list[int]:
    """Epoch of each batch in the active segment."""
    segment, found, at = machine.log.segments.active, [], 64
    while at + segment.base < machine.log.end_position:
        header = segment.file.read_at(16, at)
        found.append(int.from_bytes(header[12:], "little"))
        at += (int.from_bytes(header[4:8], "little") + 7) & ~7
    return found


def test_batches_carry_the_epoch_from_its_record_on(machine):
    machine.append(1, 0, b"before")
    start = machine.log.end_position
    machine.log.epochs.begin(7, 1234, "a")
    machine.append(1, 0, b"after")
    assert starts(machine) == ((7, start),)
    assert epochs_of_batches(machine)[-3:] == [1, 7, 7]
    assert machine.log.epoch == 7


def test_every_start_knows_the_epochs_without_the_view_too(machine):
    for epoch in (2, 3, 9):
        machine.log.epochs.begin(epoch, epoch, "a")
        live(machine, Random(epoch), 40)
    known = starts(machine)
    assert [each.epoch for each in known] == [2, 3, 9]
    for restart in (machine.reopen, machine.kill):
        restart()
        assert (starts(machine), machine.log.epoch) == (known, 9)
    machine.close()
    machine.env.set_aside(f"{machine.directory}/state")
    machine.open()
    assert (starts(machine), machine.log.epoch) == (known, 9)


def test_a_power_cut_takes_back_an_epoch_that_was_not_synced(machine):
    machine.log.epochs.begin(2, 1, "a")
    assert machine.durable()
    machine.log.epochs.begin(3, 1, "a")
    machine.crash()
    assert (machine.log.epoch, [each.epoch for each in starts(machine)]) == (2, [2])


def test_an_epoch_starts_at_the_logs_end_although_its_record_is_in_the_next_segment(machine):
    segment = machine.log.segments.active
    while machine.log.end_position <= segment.next_base - 60:
        machine.append(1, 0, bytes(8))
    start = machine.log.end_position
    machine.log.epochs.begin(2, 1, "a")
    assert machine.log.segments.active.base == segment.next_base
    assert starts(machine) == ((2, start),)


@pytest.mark.parametrize("epoch", [1, 4, 5])
def test_an_epoch_that_the_log_has_or_is_past_is_refused_and_changes_nothing(machine, epoch):
    machine.log.epochs.begin(5, 1, "a")
    end = machine.log.end_position
    with pytest.raises(EpochOrderError, match=f"epoch {epoch}"):
        machine.log.epochs.begin(epoch, 2, "b")
    assert (machine.log.end_position, machine.log.epoch, len(starts(machine))) == (end, 5, 1)
    machine.append(1, 0, b"m")


def test_a_log_that_follows_another_one_appends_nothing_until_it_begins_an_epoch(machine):
    end = machine.log.end_position
    machine.log.refusal.follow(FOLLOWS)
    for append in (
        lambda: machine.append(1, 0, b"m"),
        lambda: machine.log.create_topics([("more", 1)]),
        lambda: machine.log.put_progress([(b"k", b"v")]),
        lambda: machine.log.raise_ends([(1, 0, 99)]),
    ):
        with pytest.raises(NotMasterError, match='follows "b"'):
            append()
    machine.log.refusal.refuse("disk full")
    with pytest.raises(NotMasterError):
        machine.append(1, 0, b"m")
    machine.log.refusal.refuse("")
    assert machine.log.end_position == end
    machine.log.epochs.begin(2, 1, "a")
    assert machine.append(1, 0, b"m") == 0


def test_without_room_no_epoch_begins_and_the_log_refuses_as_before(machine):
    machine.log.refusal.follow(FOLLOWS)
    end = machine.log.end_position
    machine.env.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        machine.log.epochs.begin(2, 1, "a")
    assert (machine.log.end_position, machine.log.epoch, starts(machine)) == (end, 1, ())
    machine.env.heal()
    with pytest.raises(NotMasterError):
        machine.append(1, 0, b"m")


def test_a_slave_has_the_epochs_of_its_master_and_begins_the_next_one(pair):
    pair.slave.log.refusal.follow(FOLLOWS)
    for epoch in (2, 3):
        pair.master.log.epochs.begin(epoch, epoch, "a")
        live(pair.master, Random(epoch), 40)
    pair.follow(Random(1))
    pair.assert_equal()
    assert starts(pair.slave) == starts(pair.master)
    with pytest.raises(EpochOrderError):
        pair.slave.log.epochs.begin(3, 8, "b")
    pair.slave.log.epochs.begin(4, 8, "b")
    assert starts(pair.slave)[-1].epoch == 4


@pytest.mark.parametrize("seed", range(6))
def test_the_common_position_of_two_logs_is_where_their_bytes_part(pair, seed):
    common = pair.part(Random(seed))
    logs = pair.master, pair.slave
    ends = [(each.log.epochs.history(), each.log.end_position) for each in logs]
    assert common_position(*ends[0], *ends[1]) == common_position(*ends[1], *ends[0]) == common


@pytest.mark.parametrize("seed", range(6))
def test_an_old_master_that_is_cut_to_the_common_position_follows_the_new_one(pair, seed):
    common, old = pair.part(Random(seed)), pair.master
    cut(old, common)
    assert (old.log.end_position, [each.epoch for each in starts(old)]) == (common, [2])
    pair.master, pair.slave = pair.slave, old
    pair.follow(Random(seed))
    pair.assert_equal()
    assert starts(pair.slave) == starts(pair.master)

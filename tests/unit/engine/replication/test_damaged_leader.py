"""A log with damage leads when a disk did it, and is cut first when a power cut did: then another broker may lack it."""

import pytest
from forms import forms, load
from lives import contents
from machine import Machine

from common.cluster.group_record import GroupRecord, GroupState
from engine.env.simulated import SimulatedEnv
from engine.replication.broker import GroupBroker, UnsoundLogError

ALONE = GroupRecord(2, GroupState.SINGLE_MASTER, "a", {"a": 7})


@pytest.fixture(params=forms())
def machine(request):
    made = Machine(load(request.param), SimulatedEnv(), "/data")
    yield made
    made.close()


def flip(machine, *, is_synced):
    """Three messages, of which the second is damaged; then a start. Returns its position."""
    ends = []
    for body in (b"one", b"two", b"three"):
        machine.append(1, 0, body)
        ends.append(machine.log.end_position)
    path = machine.log.segments.active.path
    if is_synced:
        machine.durable()
        machine.log.checkpoint()
    machine.log = None
    machine.env.end_process()
    content = machine.env.files[path]
    content.seen[ends[0] + 50] ^= 1
    content.durable[:] = content.seen
    machine.open()
    assert machine.log.damage
    return ends[0]


def test_after_a_power_cut_it_is_cut_before_it_leads(machine):
    position = flip(machine, is_synced=False)
    broker = GroupBroker("a", 7, machine.log)
    assert broker.report(0).log.position == position
    with pytest.raises(UnsoundLogError, match=f"position={position}"):
        broker.adopt(1, ALONE, 0)


def test_damage_that_an_index_hides_counts_as_torn_until_it_is_repaired(machine):
    """An earlier start has noted it, and sealed the segment since; a later one does not scan it."""
    position = flip(machine, is_synced=False)
    while not machine.log.segments.sealed.bases:
        machine.append(1, 0, bytes(600))
    machine.reopen()
    assert not machine.log.damage
    with pytest.raises(UnsoundLogError, match=f"position={position}"):
        GroupBroker("a", 7, machine.log, frozenset({6}), torn_at=position, is_checked=True).adopt(1, ALONE, 0)
    content = machine.env.files[machine.log.segments.at(0).path]
    content.seen[position + 50] ^= 1  # the byte that was flipped
    assert GroupBroker("a", 7, machine.log, frozenset({6}), torn_at=position, is_checked=True).torn_at is None


@pytest.mark.parametrize("continues, is_synced", [(frozenset({6}), False), (frozenset(), True)])
def test_a_bad_sector_below_what_no_power_cut_takes_costs_the_master_one_batch_only(machine, continues, is_synced):
    flip(machine, is_synced=is_synced)
    broker = GroupBroker("a", 7, machine.log, continues)
    assert broker.report(0).log.position == machine.log.end_position
    assert broker.adopt(1, ALONE, 0) and broker.is_master
    assert contents(machine, 1, 0) == [b"one", 2, b"three"]


def test_a_slave_follows_from_below_the_damage_and_gets_the_rest_again(machine):
    position = flip(machine, is_synced=True)
    assert GroupBroker("a", 7, machine.log, frozenset({6})).ask().end == position


def tear(machine, lose):
    """A full segment that has lost unsynced bytes in a power cut, and a next one that has not."""
    machine.log.writer._jobs._sealer.submit = lambda job: None
    machine.append(1, 0, b"kept")
    assert machine.durable()
    position = machine.log.end_position
    full = machine.log.segments.active
    while machine.log.segments.active is full:
        machine.append(1, 0, b"x" * 700)
    lose(machine.env.files[full.path], position)
    machine.env.files[machine.log.segments.active.path].sync()
    machine.crash()
    return position


def lose_end(content, position):
    """Nothing of it is synced."""


def lose_a_sector(content, position):
    content.sync()
    content.durable[position : position + 300] = bytes(300)


@pytest.mark.parametrize("lose", [lose_end, lose_a_sector])
def test_a_full_segment_that_a_power_cut_has_torn_is_cut_before_the_log_leads(machine, lose):
    position = tear(machine, lose)
    broker = GroupBroker("a", 7, machine.log)
    assert broker.report(0).log.position == broker.ask().end == position
    with pytest.raises(UnsoundLogError, match=f"position={position}"):
        broker.adopt(1, ALONE, 0)


@pytest.mark.parametrize("lose", [lose_end, lose_a_sector])
def test_a_first_start_that_was_killed_hides_nothing_from_the_next_one(machine, lose):
    """It has written the segment's index, and not yet what is torn."""
    position = tear(machine, lose)
    machine.log = None
    machine.env.end_process()
    machine.log = machine.form.log.open_log(machine.env, machine.directory, machine.config, scans_all=True)
    assert GroupBroker("a", 7, machine.log).torn_at == position

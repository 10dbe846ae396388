"""A slave and its master find out from where on they have the same log, or that they do not."""

from random import Random

import pytest
from forms import forms, load
from lives import live
from machine import Machine
from pair import Pair, cut

from engine.env.simulated import SimulatedEnv
from engine.replication.follow import FollowStep, ForeignLogError, answer_follow, next_step
from engine.replication.frames import Follow, Followed


@pytest.fixture(params=forms())
def pair(request):
    made = Pair(load(request.param), SimulatedEnv(), SimulatedEnv())
    yield made
    made.close()


def asked(slave: Machine) -> Follow:
    return Follow.decode(Follow(5, 77, slave.log.end_position, slave.log.epochs.history().starts).encode())


def answered(master: Machine, slave: Machine) -> Followed:
    made = answer_follow(master.log.raw, master.log.epochs.history(), 5, asked(slave))
    return Followed.decode(made.encode())


def test_a_slave_that_lacks_the_end_follows_from_its_own(pair):
    pair.master.log.epochs.begin(5, 1, "a")
    live(pair.master, Random(1), 30)
    pair.follow(Random(1))
    live(pair.master, Random(2), 30)
    answer = answered(pair.master, pair.slave)
    assert (answer.epoch, answer.common) == (5, pair.slave.log.end_position) and answer.proven > 0
    assert next_step(pair.slave.log.raw, answer) is FollowStep.FOLLOW


@pytest.mark.parametrize("seed", range(4))
def test_an_old_master_cuts_its_log_and_then_follows(pair, seed):
    common = pair.part(Random(seed))
    old, new = pair.master, pair.slave
    answer = answered(new, old)
    assert next_step(old.log.raw, answer) is FollowStep.TRUNCATE
    assert answer.common == common
    cut(old, common)
    assert next_step(old.log.raw, answered(new, old)) is FollowStep.FOLLOW
    pair.master, pair.slave = new, old
    pair.follow(Random(seed))
    pair.assert_equal()


def test_a_copy_that_went_on_before_there_were_epochs_must_not_follow(pair):
    live(pair.master, Random(1), 5)
    pair.follow(Random(1))
    for machine, body in ((pair.master, b"one"), (pair.slave, b"two")):
        machine.append(1, 0, body)
    pair.master.log.epochs.begin(5, 1, "a")
    with pytest.raises(ForeignLogError, match="are not the master's"):
        next_step(pair.slave.log.raw, answered(pair.master, pair.slave))


def test_a_slave_fetches_what_the_master_has_deleted(pair):
    pair.follow(Random(1))
    while pair.master.log.segments.active.base < 3 * 8192:
        pair.master.append(1, 0, bytes(2000))
    pair.master.log.segments.sealed.bases.discard(0)
    answer = answered(pair.master, pair.slave)
    assert answer.first == 8192 + 64
    assert next_step(pair.slave.log.raw, answer) is FollowStep.FETCH


def test_a_slave_that_has_lost_the_common_position_itself_fetches_all(pair):
    """As one whose first segment is lost, and with it the record of the epoch: no epoch is common then."""
    pair.follow(Random(1))
    answer = answered(pair.master, pair.slave)
    while pair.slave.log.segments.active.base < 3 * 8192:
        pair.slave.append(1, 0, bytes(2000))
    pair.slave.log.segments.sealed.bases.discard(0)
    assert next_step(pair.slave.log.raw, answer) is FollowStep.FETCH

"""A new epoch ends what a master sends under the one before: a slave gets nothing before it asks again."""

from dataclasses import replace
from random import Random

import pytest
from forms import forms, load
from lives import live
from machine import Machine
from pair import Pair, cut

from common.cluster.group_record import GroupRecord, GroupState
from engine.env.simulated import SimulatedEnv
from engine.replication.broker import GroupBroker
from engine.replication.follow import FollowStep, answer_follow, next_step
from engine.replication.frames import Follow

ALONE = GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 7})


@pytest.fixture(params=forms())
def machine(request):
    made = Machine(load(request.param), SimulatedEnv(), "/data")
    yield made
    made.close()


def test_a_slave_of_the_epoch_before_gets_nothing_before_it_asks_again(machine):
    broker = GroupBroker("a", 7, machine.log)
    broker.adopt(1, ALONE, 0)
    broker.follow("b", Follow(1, 8, machine.log.end_position, machine.log.epochs.history().starts), 0)
    machine.append(1, 0, b"one")
    assert list(broker.frames("b", 0)), "the slave does not follow"
    assert broker.adopt(2, replace(ALONE, epoch=2), 0)
    machine.append(1, 0, b"two")
    assert broker.slaves == [] and list(broker.frames("b", 1_000)) == []


@pytest.fixture(params=forms())
def pair(request):
    made = Pair(load(request.param), SimulatedEnv(), SimulatedEnv())
    yield made
    made.close()


def test_a_segment_without_a_batch_is_cut_off_because_its_header_may_be_another_ones(pair):
    pair.master.log.epochs.begin(2, 1, "a")
    first = pair.master.log.segments.active.base
    while pair.master.log.segments.active.base == first:
        live(pair.master, Random(1), 1)
    while pair.slave.log.end_position < pair.master.log.segments.active.base:
        position, data = pair.next_bytes(100_000)
        if not data:
            break
        pair.slave.log.follower.apply(position, data)
    full_to = pair.slave.log.end_position
    master_header = pair.master.log.segments.active.header
    other_header = replace(master_header, created_ms=master_header.created_ms + 1)
    pair.slave.log.follower.begin_segment(other_header.pack())
    slave = GroupBroker("b", 8, pair.slave.log)
    slave.adopt(2, replace(ALONE, epoch=4), 0)
    asked = slave.ask()
    assert asked.end == full_to < pair.slave.log.end_position
    answer = answer_follow(pair.master.log.raw, pair.master.log.epochs.history(), 4, asked)
    assert next_step(pair.slave.log.raw, answer) is FollowStep.TRUNCATE
    cut(pair.slave, answer.common)
    pair.follow(Random(1))
    pair.assert_equal()

"""A new epoch ends what a master sends under the one before: a slave gets nothing before it asks again."""

from dataclasses import replace

import pytest
from forms import forms, load
from machine import Machine

from common.cluster.group_record import GroupRecord, GroupState
from engine.env.simulated import SimulatedEnv
from engine.replication.broker import GroupBroker
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

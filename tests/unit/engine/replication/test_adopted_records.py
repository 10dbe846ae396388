"""Records of a group as a broker adopts them, also those of a group whose record was lost."""

from dataclasses import replace

import pytest
from forms import forms, load
from machine import Machine

from common.cluster.group_record import GroupRecord, GroupState
from engine.env.simulated import SimulatedEnv
from engine.replication.broker import GroupBroker

ALONE = GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 7})


@pytest.fixture(params=forms())
def broker(request):
    machine = Machine(load(request.param), SimulatedEnv(), "/data")
    yield GroupBroker("a", 7, machine.log)
    machine.close()


def test_an_older_record_changes_nothing(broker):
    broker.adopt(3, ALONE, 0)
    assert not broker.adopt(2, replace(ALONE, in_sync={"a": 7, "b": 8}, state=GroupState.SYNC_REPLICATION), 0)
    assert broker.version == 3


def test_the_record_of_a_later_epoch_is_newer_though_its_version_is_lower(broker):
    """A record that was lost begins with version 1 again, when an operator has named a master."""
    broker.adopt(9, ALONE, 0)
    assert broker.adopt(1, replace(ALONE, epoch=1001), 0)
    assert (broker.version, broker.epoch) == (1, 1001)
    assert not broker.adopt(10, ALONE, 0), "a record of the epoch before comes late"
    broker.adopt(2, replace(ALONE, epoch=1001), 0)
    assert broker.version == 2

"""A member of the set that takes less than is appended is reported as lost; a slave that copies the log is not."""

from dataclasses import replace

import pytest
from forms import forms, load
from machine import Machine

from common.cluster.group_record import GroupRecord, GroupState
from engine.env.simulated import SimulatedEnv
from engine.replication.broker import GroupBroker
from engine.replication.frames import Follow

ALONE = GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 7})
BOTH = replace(ALONE, state=GroupState.SYNC_REPLICATION, in_sync={"a": 7, "b": 8})


@pytest.fixture(params=forms())
def machine(request):
    made = Machine(load(request.param), SimulatedEnv(), "/data")
    yield made
    made.close()


@pytest.mark.parametrize(("record", "is_lost"), [(BOTH, True), (ALONE, False)], ids=["in sync", "copies"])
def test_a_slave_that_is_always_one_message_behind_more_is_lost_once_callers_wait_for_it(machine, record, is_lost):
    broker = GroupBroker("a", 7, machine.log)
    broker.adopt(1, record, 0)
    broker.follow("b", Follow(1, 8, machine.log.end_position, machine.log.epochs.history().starts), 0)
    ends = []
    for now_ms in range(0, 12_000, 100):
        for body in (b"one", b"two"):
            machine.append(1, 0, body)
            ends.append(machine.log.end_position)
        list(broker.frames("b", now_ms))
        broker.stored("b", 1, ends.pop(0), 0, now_ms)
        if broker.report(now_ms).followers["b"].is_lost:
            break
    assert broker.report(now_ms).followers["b"].is_lost is is_lost
    assert now_ms < 6_000 or not is_lost

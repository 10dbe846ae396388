"""Members that are reported as lost: they take less than is appended, or do not follow in time. Others are not."""

from dataclasses import replace

import pytest
from forms import forms, load
from machine import Machine

from common.cluster.group_record import GroupRecord, GroupState
from engine.env.simulated import SimulatedEnv
from engine.replication.broker import GroupBroker
from engine.replication.frames import Follow

ALONE = GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 7})
THREE = GroupRecord(1, GroupState.SYNC_REPLICATION, "b", {"a": 7, "b": 8, "c": 9})
SURVIVORS = replace(THREE, epoch=2, master="a", in_sync={"a": 7, "c": 9})
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


def lost(broker: GroupBroker, now_ms: int) -> dict[str, bool]:
    return {name: each.is_lost for name, each in broker.report(now_ms).followers.items()}


@pytest.mark.parametrize("record", [SURVIVORS, replace(SURVIVORS, in_sync=THREE.in_sync)], ids=["killed", "planned"])
def test_a_member_that_follows_a_new_master_has_time_for_it_from_the_change_of_the_role_on(machine, record):
    broker = GroupBroker("a", 7, machine.log)
    broker.adopt(1, THREE, 0)
    assert lost(broker, 60_000) == {}
    broker.adopt(2, record, 60_000)
    others = record.in_sync.keys() - {"a"}
    assert lost(broker, 60_000) == lost(broker, 60_899) == dict.fromkeys(others, False)
    broker.adopt(3, replace(record, before={}), 60_500)  # another record of the same term gives no more time
    assert lost(broker, 60_900) == dict.fromkeys(others, True)


def test_a_member_that_does_not_come_back_to_a_master_of_another_term_has_time_anew(machine):
    broker = GroupBroker("a", 7, machine.log)
    broker.adopt(1, replace(THREE, master="a"), 0)
    assert lost(broker, 900) == {"b": True, "c": True}
    broker.adopt(2, replace(SURVIVORS, epoch=3), 5_000)
    assert lost(broker, 5_899) == {"c": False}

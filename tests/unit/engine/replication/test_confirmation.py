"""A master confirms nothing that a member it waits for does not have, and takes nothing back."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.group_record import GroupRecord, GroupState
from engine.replication import confirmation, native
from engine.replication.positions import NOTHING, Confirmed

FORMS = {"reference": confirmation.Confirmation} | ({"native": native.Confirmation} if native.NATIVE else {})

LONE = GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 1})
JOINING = replace(LONE, state=GroupState.SEMI_SYNC, joining={"b": 2})
PAIR = replace(LONE, state=GroupState.SYNC_REPLICATION, in_sync={"a": 1, "b": 2})
ALONE_AGAIN = replace(LONE, epoch=2)
THREE = replace(PAIR, in_sync={"a": 1, "b": 2, "c": 3})


@pytest.fixture(params=FORMS)
def master(request) -> confirmation.Confirmation:
    made = FORMS[request.param]("a")
    made.written(100)
    made.synced(60)
    return made


def test_nothing_is_confirmed_before_a_record_is_adopted(master):
    assert master.confirmed == NOTHING and not master.is_settled


def test_a_lone_master_confirms_nothing_before_all_that_it_had_is_synced(master):
    master.adopt(LONE)
    assert master.confirmed == NOTHING
    master.written(120)
    master.synced(99)
    assert master.confirmed == NOTHING
    master.synced(100)
    assert master.confirmed == Confirmed(120, 100, 100, 100) and master.is_settled


def test_a_master_with_a_slave_waits_for_it(master):
    master.adopt(PAIR)
    assert master.confirmed == NOTHING
    master.stored("b", 2, 80, 10)
    assert master.confirmed == Confirmed(80, 60, 80, 10)
    master.synced(200)
    assert master.confirmed == Confirmed(80, 80, 80, 10)
    master.stored("b", 2, 500, 500)
    assert master.confirmed == Confirmed(100, 100, 100, 100)


def test_a_slave_that_has_restarted_is_another_member(master):
    master.adopt(PAIR)
    master.stored("b", 2, 80, 80)
    master.stored("b", 3, 100, 100)
    assert master.confirmed == Confirmed(80, 60, 80, 60)


def test_a_silent_slave_holds_back_everything_until_a_record_drops_it(master):
    master.adopt(PAIR)
    master.stored("b", 2, 100, 100)
    master.written(300)
    master.synced(300)
    assert master.confirmed == Confirmed(100, 100, 100, 100)
    master.written(310)
    master.adopt(ALONE_AGAIN)
    assert master.confirmed == Confirmed(100, 100, 100, 100)
    master.synced(310)
    assert master.confirmed == Confirmed(310, 310, 310, 310)


def test_a_member_that_joins_is_waited_for_and_makes_nothing_less_durable(master):
    master.adopt(LONE)
    master.synced(100)
    master.adopt(JOINING)
    master.written(200)
    assert master.confirmed.memory == 100 and not master.has_all("b")
    master.stored("b", 2, 150, 99)
    assert master.confirmed == Confirmed(150, 100, 100, 100)
    assert not master.has_all("b"), "it would lack what the record's floor names, after a power cut"
    master.stored("b", 2, 150, 100)
    assert master.has_all("b")


def test_what_was_confirmed_stays_so_when_a_member_that_is_behind_joins(master):
    master.adopt(LONE)
    master.synced(100)
    master.adopt(JOINING)
    master.stored("b", 2, 10, 10)
    assert master.confirmed == Confirmed(100, 100, 100, 100)


def test_the_slowest_of_several_members_counts(master):
    master.adopt(THREE)
    master.stored("b", 2, 90, 90)
    master.stored("c", 3, 70, 50)
    assert master.confirmed == Confirmed(70, 60, 70, 50)


def test_a_deposed_master_confirms_nothing_more(master):
    master.adopt(PAIR)
    master.stored("b", 2, 50, 50)
    master.adopt(replace(PAIR, epoch=2, master="b"))
    assert master.confirmed == Confirmed(50, 50, 50, 50)
    master.stored("b", 2, 100, 100)
    assert master.confirmed == Confirmed(50, 50, 50, 50)
    assert not master.is_settled


STEPS = st.one_of(
    st.tuples(st.just("written"), st.integers(0, 40)),
    st.tuples(st.just("synced"), st.integers(0, 40)),
    st.tuples(st.just("adopt"), st.sampled_from([LONE, JOINING, PAIR, ALONE_AGAIN, THREE])),
    st.tuples(st.just("stored"), st.sampled_from("bc"), st.integers(1, 3), st.integers(0, 40), st.integers(0, 40)),
)


def test_a_master_that_loses_a_member_is_settled_once_it_has_synced_what_it_had_then(master):
    master.adopt(THREE)
    master.synced(100)
    assert master.is_settled
    master.written(130)
    master.adopt(replace(PAIR, before={"c": 3}))
    assert not master.is_settled, "only c may have what the three have confirmed, after a power cut of the others"
    master.written(150)
    master.adopt(replace(PAIR, before={"c": 3}, joining={"c": 4}))
    master.synced(130)
    assert master.is_settled
    master.adopt(PAIR)
    assert master.is_settled


def test_a_step_that_confirms_nothing_more_says_so(master):
    master.adopt(PAIR)
    assert not master.advance(120, 70)
    master.stored("b", 2, 120, 0)
    assert not master.advance(130, 70) and master.advance(130, 71)
    assert master.confirmed == Confirmed(120, 71, 120, 0)


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_no_step_confirms_what_a_member_lacks(form, steps):
    master, record, end, synced, told = FORMS[form]("a"), None, 0, 0, {}
    before = NOTHING
    for kind, *rest in steps:
        if kind == "written":
            end = max(end, rest[0])
            master.written(end)
        elif kind == "synced":
            synced = max(synced, min(rest[0], end))
            master.synced(synced)
        elif kind == "adopt":
            if record is not None and rest[0].epoch < record.epoch:
                continue
            record = rest[0]
            master.adopt(record)
        else:
            member, incarnation, stored, durable = rest
            told[member] = SimpleNamespace(incarnation=incarnation, end=stored, synced=min(stored, durable))
            master.stored(member, incarnation, stored, min(stored, durable))
        now = master.confirmed
        assert all(each >= last for each, last in zip(now, before, strict=True)) and max(now) == now.memory <= end
        if now.memory > before.memory:
            for member, number in record.awaited.items():
                assert told[member].incarnation == number and told[member].end >= now.memory
        if now.replicated_fsync > before.replicated_fsync:
            assert synced >= now.replicated_fsync
            assert all(told[member].synced >= now.replicated_fsync for member in record.awaited)
        if now.replicated > before.replicated and len(record.in_sync) == 1:
            assert synced >= now.replicated
        before = now

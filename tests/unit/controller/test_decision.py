"""The table of docs/design/0031-switch-over.md, case by case."""

from dataclasses import replace

import pytest

from common.cluster.group_record import GroupRecord, GroupState, LogPoint
from common.cluster.reports import BrokerReport, BrokerView, FollowerReport
from controller.decision import JOIN_GAP_BYTES, decide

LOG = "0123456789abcdef"
VERSION = 7
SYNC = GroupRecord(3, GroupState.SYNC_REPLICATION, "a", {"a": 1, "b": 1}, log_id=LOG, floor=LogPoint(3, 100))
SINGLE = replace(SYNC, state=GroupState.SINGLE_MASTER, in_sync={"a": 1})
ASYNC = replace(SINGLE, state=GroupState.ASYNC_REPLICATION)
SEMI = replace(SINGLE, state=GroupState.SEMI_SYNC, joining={"b": 1})


def report(incarnation: int = 1, **fields) -> BrokerReport:
    told = {"version": VERSION, "log_id": LOG, "log": LogPoint(3, 200), "synced": LogPoint(3, 150), **fields}
    return BrokerReport(incarnation, **{"continues": frozenset((incarnation,)), **told})


def view(incarnation: int = 1, **fields) -> BrokerView:
    return BrokerView(incarnation, report(incarnation, **fields))


def following(gap: int = 0, is_lost: bool = False, has_all: bool = True, incarnation: int = 1) -> dict:
    return {"b": FollowerReport(incarnation, gap, is_lost, has_all)}


AWAY = BrokerView(1, None)


def test_the_first_broker_of_a_group_is_its_master():
    found = decide(0, None, {"b": view(log_id="", log=LogPoint(0, 0)), "a": view(log_id="", log=LogPoint(0, 0))}).record
    assert (found.epoch, found.state, found.master, found.in_sync) == (1, GroupState.SINGLE_MASTER, "a", {"a": 1})
    found = decide(0, None, {"a": view(log_id="", log=LogPoint(0, 0)), "b": view(log=LogPoint(0, 500))}).record
    assert (found.master, found.log_id) == ("b", LOG), "a data directory of before becomes the first replica"


def test_no_group_begins_with_a_log_of_an_earlier_group_or_with_two_logs():
    assert "has a log of epoch 3" in decide(0, None, {"a": view()}).sentence
    longer = decide(0, None, {"a": view(), "b": view(log=LogPoint(3, 900))})
    assert "broker switch --to b --force" in longer.sentence, "what an operator copies loses nothing"
    two = {"a": view(log=LogPoint(0, 5)), "b": view(log=LogPoint(0, 5), log_id="f" * 16)}
    assert "different logs" in decide(0, None, two).sentence
    assert decide(0, None, {"a": AWAY}).record is None


@pytest.mark.parametrize("others", [{}, {"b": AWAY}], ids=["all have restarted", "a member is not reached"])
def test_nobody_leads_by_a_record_that_is_older_than_a_log(others):
    """The store was put back from an older copy: `c` has led since, and `a` is complete as far as that copy tells."""
    complete = view(2, continues=frozenset((1, 2)))
    assert decide(VERSION, SYNC, {"a": complete, **others}).record.master == "a"
    found = decide(VERSION, SYNC, {"a": complete, "c": view(9, log=LogPoint(5, 900)), **others})
    assert found.record is None and "broker switch --to c --force" in found.sentence


def test_a_group_does_not_begin_while_a_registered_broker_is_not_reached_that_may_have_the_log():
    empty = view(log_id="", log=LogPoint(0, 0))
    found = decide(0, None, {"a": AWAY, "b": empty})
    assert found.record is None and found.sentence.endswith("are reached: not a")
    assert decide(0, None, {"a": view(log=LogPoint(0, 5)), "b": empty}).record.master == "a"


def test_a_slave_comes_into_the_set_step_by_step():
    brokers = {"a": view(followers=following(gap=2 * JOIN_GAP_BYTES, has_all=False)), "b": view()}
    assert decide(VERSION, SINGLE, brokers).record.state is GroupState.ASYNC_REPLICATION
    assert decide(VERSION, ASYNC, brokers).record is None, "it is too far behind"
    brokers["a"] = view(followers=following(gap=JOIN_GAP_BYTES, has_all=False))
    semi = decide(VERSION, ASYNC, brokers).record
    assert (semi.state, semi.joining, semi.in_sync, semi.epoch) == (GroupState.SEMI_SYNC, {"b": 1}, {"a": 1}, 3)
    assert decide(VERSION, ASYNC, brokers, resting={"b"}).record is None
    assert decide(VERSION, SEMI, brokers, age_s=0.1).record is None
    assert decide(VERSION, SEMI, brokers, age_s=0.6).record.state is GroupState.ASYNC_REPLICATION
    brokers["a"] = view(followers=following())
    sync = decide(VERSION, SEMI, brokers, age_s=0.6).record
    assert (sync.state, sync.in_sync, sync.joining, sync.epoch) == (SYNC.state, SYNC.in_sync, {}, 3)
    assert sync.floor == LogPoint(3, 150)


def test_what_a_master_reports_of_an_earlier_record_changes_nothing():
    brokers = {"a": view(version=VERSION - 1, followers=following()), "b": view()}
    assert decide(VERSION, SEMI, brokers, age_s=1.0).record is None


def test_the_state_of_a_group_whose_slave_comes_and_goes_changes_seldom():
    brokers = {"a": view(followers={}), "b": view()}
    assert decide(VERSION, ASYNC, brokers, age_s=1.9).record is None
    assert decide(VERSION, ASYNC, brokers, age_s=2.0).record.state is GroupState.SINGLE_MASTER


def test_a_member_leads_in_the_place_of_a_master_that_has_no_room_to_begin_its_epoch():
    full = view(version=VERSION - 1, cannot_lead="no room")
    found = decide(VERSION, SYNC, {"a": full, "b": view()}).record
    assert (found.master, found.epoch, found.in_sync) == ("b", 4, {"a": 1, "b": 1})
    assert found.reason == "broker a cannot lead: b is master"
    both = decide(VERSION, SYNC, {"a": full, "b": view(cannot_lead="no room here either")})
    assert both == (None, "broker a cannot lead, and no other has everything: no room")
    alone = decide(VERSION, SINGLE, {"a": full, "b": view()})
    assert alone == (None, "broker a cannot lead, and no other has everything: no room")
    assert decide(VERSION, SINGLE, {"a": view(version=VERSION - 1), "b": view()}) == (None, "")


@pytest.mark.parametrize("told", [following(is_lost=True), following(incarnation=2)], ids=["lost", "restarted"])
def test_a_master_that_loses_its_last_slave_goes_on_under_a_new_epoch(told):
    brokers = {"a": view(followers=told), "b": view(2)}
    alone = decide(VERSION, SYNC, brokers).record
    assert (alone.state, alone.epoch, alone.master, alone.in_sync) == (GroupState.SINGLE_MASTER, 4, "a", {"a": 1})
    assert alone.before == {"b": 1}, "it may be the only one that has what is not synced yet"
    brokers = {"a": view(followers=following(is_lost=True), is_settled=True), "b": AWAY}
    assert decide(VERSION, alone, brokers).record.before == {}


def test_a_slave_that_restarts_is_not_lost_before_the_master_says_so():
    """The master may hang since its report: alone, it could not be replaced by the slave."""
    assert decide(VERSION, SYNC, {"a": view(followers=following()), "b": view(2)}) == (None, "")
    assert decide(VERSION, SYNC, {"a": AWAY, "b": view(2, **COMPLETE)}).record.master == "b"


def test_a_master_with_two_slaves_loses_one_without_a_new_epoch():
    three = replace(SYNC, in_sync={"a": 1, "b": 1, "c": 1})
    found = decide(VERSION, three, {"a": view(followers=following(is_lost=True)), "b": view(), "c": view()}).record
    assert (found.state, found.epoch, found.in_sync) == (SYNC.state, 3, {"a": 1, "c": 1})
    assert found.before == {"b": 1}, (
        "after a power cut of the others it may be the only one that has what is not synced"
    )
    lost = {"a": view(2), "c": view(2)}
    assert "waiting for b" in decide(VERSION, found, lost).sentence
    there = decide(VERSION, found, {**lost, "b": view(log=LogPoint(3, 220))}).record
    assert (there.master, there.before) == ("b", {"a": 1, "c": 1})
    others = {"c": following()["b"]}
    assert decide(VERSION, found, {"a": view(followers=others), "c": view()}).record is None
    assert decide(VERSION, found, {"a": view(followers=others, is_settled=True), "c": view()}).record.before == {}


def test_a_master_is_replaced_only_when_a_slave_and_the_controller_have_lost_it():
    assert decide(VERSION, SYNC, {"a": AWAY, "b": view(hears_master=True)}).record is None
    assert decide(VERSION, SYNC, {"a": view(followers=following()), "b": view(hears_master=False)}).record is None
    assert decide(VERSION, SYNC, {"a": AWAY, "b": view(hears_master=False, version=VERSION - 1)}).record is None
    found = decide(VERSION, SYNC, {"a": AWAY, "b": view(hears_master=False)}).record
    assert (found.master, found.epoch, found.in_sync, found.before) == ("b", 4, {"b": 1}, {"a": 1})
    assert decide(VERSION, SYNC, {"a": view(2), "b": view(hears_master=True)}).record is None, "it may hang since then"
    assert decide(VERSION, SYNC, {"a": view(2), "b": view(hears_master=False)}).record.master == "b"


def test_of_two_slaves_the_one_with_more_is_promoted_and_the_other_stays():
    three = replace(SYNC, in_sync={"a": 1, "b": 1, "c": 1})
    found = decide(VERSION, three, {"a": AWAY, "b": view(log=LogPoint(3, 180)), "c": view()}).record
    assert (found.master, found.state, found.in_sync) == ("c", SYNC.state, {"b": 1, "c": 1})


@pytest.mark.parametrize("record", [SINGLE, ASYNC, SEMI])
def test_no_slave_is_promoted_that_is_not_in_sync(record):
    found = decide(VERSION, record, {"a": AWAY, "b": view(hears_master=False)})
    assert found.record is None and "no other has everything" in found.sentence


COMPLETE = {"continues": frozenset((1, 2))}
"""A report of the second process of a broker, whose log has all that the first one had."""


def test_a_slave_that_restarts_with_its_whole_log_while_the_master_hangs_is_promoted():
    brokers = {"a": AWAY, "b": view(2, version=0, **COMPLETE)}
    found = decide(VERSION, SYNC, brokers).record
    assert (found.master, found.epoch, found.in_sync, found.before) == ("b", 4, {"b": 2}, {"a": 1})
    assert found.reason == "broker a is not reached; b has restarted and is master: its log is complete"
    assert decide(VERSION, SYNC, {"a": view(followers=following()), "b": brokers["b"]}) == (None, ""), "it is reached"


def test_a_master_that_restarts_with_its_whole_log_while_the_slave_hangs_leads_again():
    found = decide(VERSION, SYNC, {"a": view(2, **COMPLETE), "b": AWAY}).record
    assert (found.master, found.in_sync, found.before) == ("a", {"a": 2}, {"b": 1})


@pytest.mark.parametrize("changes", [{"continues": frozenset((2,))}, {"log_id": "f" * 16}, {"log": LogPoint(3, 99)}])
def test_a_slave_that_restarts_without_its_whole_log_waits_for_the_master_that_hangs(changes):
    found = decide(VERSION, SYNC, {"a": AWAY, "b": view(2, **{**COMPLETE, **changes})})
    sentence = "broker a is not reached, and the log of broker b is not known to be complete after a restart"
    assert found == (None, sentence)


def test_a_lone_master_that_hangs_is_not_replaced_by_a_slave_that_was_in_sync_once():
    alone = replace(SINGLE, epoch=4, before={"b": 1})
    found = decide(VERSION, alone, {"a": AWAY, "b": view(2, **COMPLETE)})
    assert found == (None, "broker a is not reached, and no other has everything")
    both = decide(VERSION, SYNC, {"a": AWAY, "b": AWAY})
    assert both == (None, "broker a, b is not reached, and no other has everything")


def test_after_everything_stopped_a_complete_log_is_enough():
    found = decide(VERSION, SYNC, {"b": view(2, continues=frozenset((1, 2)))}).record
    assert (found.master, found.state, found.in_sync, found.before) == (
        "b",
        GroupState.SINGLE_MASTER,
        {"b": 2},
        {"a": 1},
    )


def test_after_a_power_cut_of_all_the_furthest_of_all_logs_is_chosen():
    one = decide(VERSION, SYNC, {"b": view(2)})
    assert one.record is None and one.sentence.endswith("waiting for a")
    found = decide(VERSION, SYNC, {"a": view(2, log=LogPoint(3, 190)), "b": view(2)}).record
    assert (found.master, found.epoch) == ("b", 4)


@pytest.mark.parametrize("changes", [{"log_id": ""}, {"log_id": "f" * 16}, {"log": LogPoint(3, 99)}])
def test_an_empty_foreign_or_older_log_counts_for_nothing(changes):
    found = decide(
        VERSION, SYNC, {"a": view(2, continues=frozenset((1, 2)), **changes), "b": AWAY._replace(incarnation=2)}
    )
    assert found.record is None and "the log of a is another or an older copy" in found.sentence


def test_a_first_master_that_restarts_before_its_log_was_recorded_goes_on():
    begun = replace(SINGLE, log_id="")
    found = decide(VERSION, begun, {"a": view(2, continues=frozenset((1, 2)))}).record
    assert (found.master, found.in_sync) == ("a", {"a": 2})


def test_without_a_log_only_a_broker_that_was_told_to_begins_one():
    empty = {"log_id": "", "log": LogPoint(0, 0)}
    waits = decide(0, None, {"a": view(can_begin=False, **empty)})
    assert waits.record is None and "--first" in waits.sentence
    brokers = {"a": view(can_begin=False, **empty), "b": view(**empty)}
    assert decide(0, None, brokers).record.master == "b"
    assert decide(0, None, {**brokers, "c": view(can_begin=False, log=LogPoint(0, 90))}).record.master == "c"


def test_a_member_of_the_set_before_may_have_what_a_master_lost_that_had_not_synced_it():
    alone = replace(SINGLE, epoch=4, before={"b": 1})
    assert "waiting for b" in decide(VERSION, alone, {"a": view(2)}).sentence
    found = decide(VERSION, alone, {"a": view(2, log=LogPoint(3, 120)), "b": view()}).record
    assert (found.master, found.before) == ("b", {"a": 1})

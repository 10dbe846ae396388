"""Switches by operators: what is allowed, what is refused, and what force loses."""

from dataclasses import replace

import pytest

from common.cluster.group_record import GroupState, LogPoint
from common.cluster.reports import BrokerView
from controller.planned_switch import UNKNOWN_EPOCHS, forced, left_out, switched
from tests.unit.controller.test_decision import ASYNC, AWAY, LOG, SEMI, SINGLE, SYNC, VERSION, view

THREE = replace(SYNC, in_sync={"a": 1, "b": 1, "c": 1}, joining={"d": 1}, before={"e": 9})


def test_an_in_sync_member_becomes_master_and_the_set_stays():
    found = switched(VERSION, THREE, {"a": view(), "b": view(), "c": view()}, "c")
    assert (found.epoch, found.master, found.state) == (4, "c", GroupState.SYNC_REPLICATION)
    assert (found.in_sync, found.joining, found.before) == (THREE.in_sync, {}, THREE.before)
    assert found.floor == THREE.floor and found.fault() is None and "by an operator" in found.reason


def test_without_a_name_the_member_whose_log_reaches_furthest_is_taken():
    brokers = {"a": view(log=LogPoint(3, 900)), "b": view(log=LogPoint(3, 180)), "c": view(log=LogPoint(3, 190))}
    assert switched(VERSION, THREE, brokers).master == "c"
    assert switched(VERSION, THREE, {**brokers, "c": AWAY}).master == "b"


@pytest.mark.parametrize("record", [SINGLE, ASYNC, SEMI])
def test_without_an_in_sync_slave_nothing_is_switched(record):
    sentence = switched(VERSION, record, {"a": view(), "b": view()}, "b")
    assert record.state.value in sentence and "--force" in sentence


@pytest.mark.parametrize(
    ("to", "brokers", "said"),
    [
        ("a", {"a": view(), "b": view()}, "is the master already"),
        ("x", {"a": view(), "b": view(), "x": view()}, "is not in sync (in sync: a, b)"),
        ("b", {"a": view(), "b": AWAY}, "broker b is registered and not reached: try again"),
        ("b", {"a": view()}, "broker b is not registered: start it"),
        ("b", {"a": AWAY, "b": view(2)}, "broker b has restarted and is not in sync again yet: wait for it; what only"),
        ("b", {"a": view(), "b": view(version=VERSION - 1)}, "has not adopted the newest record"),
        ("", {"a": view(), "b": AWAY}, "no other member"),
        ("", {"a": view(), "b": view(version=VERSION - 1)}, "no other member"),
    ],
)
def test_what_is_refused_is_said(to, brokers, said):
    assert said in switched(VERSION, SYNC, brokers, to)


@pytest.mark.parametrize("record", [SYNC, SINGLE])
def test_a_broker_that_the_group_does_not_have_cannot_be_forced_either(record):
    brokers = {"a": view(), "b": view()}
    sentence = "the group has no broker nope (brokers: a, b)"
    assert switched(VERSION, record, brokers, "nope") == forced(record, brokers, "nope") == sentence


def test_a_member_that_would_forget_ids_is_not_made_master():
    wide, narrow, unknown = view(id_window_mib=256), view(id_window_mib=128), view()
    said = switched(VERSION, SYNC, {"a": wide, "b": narrow}, "b")
    assert said.startswith("broker b would forget ids") and said.endswith("start it with --id-window-mib 256")
    assert switched(VERSION, SYNC, {"a": wide, "b": narrow}) == said
    assert switched(VERSION, THREE, {"a": wide, "b": narrow, "c": wide}).master == "c"
    assert switched(VERSION, SYNC, {"a": narrow, "b": wide}).master == "b"
    assert switched(VERSION, SYNC, {"a": wide, "b": unknown}).master == "b", "a broker of an earlier version"


def test_force_makes_any_reached_broker_master_alone():
    record = replace(SYNC, before={"c": 4}, floor=LogPoint(3, 150))
    found = forced(record, {"b": view(7, log=LogPoint(2, 120))}, "b")
    assert (found.epoch, found.master, found.state, found.in_sync) == (4, "b", GroupState.SINGLE_MASTER, {"b": 7})
    assert (found.before, found.joining, found.log_id) == ({}, {}, LOG), "no later decision waits for the others"
    assert found.floor == LogPoint(2, 120), "its own log must not count as an older copy"
    assert found.fault() is None


def test_force_takes_an_epoch_above_that_of_every_log():
    brokers = {"a": view(log=LogPoint(9, 10)), "b": view(log=LogPoint(6, 500))}
    assert forced(SYNC, brokers, "b").epoch == 10
    assert forced(None, brokers, "b").epoch == 9 + UNKNOWN_EPOCHS, "brokers that are not reached may have later ones"
    assert forced(replace(SYNC, epoch=20), brokers, "b").epoch == 21


def test_force_needs_a_broker_that_is_reached():
    assert forced(SYNC, {"a": view()}, "b") == "broker b is not registered: start it"
    assert forced(None, {}, "b") == "the group has no broker b (brokers: none)"
    assert forced(SYNC, {"b": AWAY}, "b") == "broker b is registered and not reached"


def test_force_says_whose_messages_are_lost():
    brokers = {"a": view(log=LogPoint(3, 1250)), "b": view(), "c": view(log=LogPoint(2, 150)), "d": AWAY}
    assert left_out(THREE, brokers, "b") == [
        "broker a is left out: 1,050 bytes of its log that only it has are lost",
        "broker c is left out; its log does not reach further",
        "broker d is left out and not reached: what only it has is lost",
        "broker e is left out and not reached: what only it has is lost",
    ]
    later = {"a": view(log=LogPoint(4, 10)), "b": view()}
    assert "of a later epoch" in left_out(SYNC, later, "b")[0]
    foreign = BrokerView(1, replace(view().report, log_id="f" * 16))
    assert "all messages of the group are lost" in left_out(SYNC, {"a": view(), "b": foreign}, "b")[0]
    assert left_out(None, {"b": view()}, "b") == []


def test_force_without_a_record_says_which_of_the_registered_brokers_has_more():
    """Nothing else tells an operator whose log to keep."""
    brokers = {"a": view(log=LogPoint(3, 1250)), "b": view(), "c": AWAY}
    assert left_out(None, brokers, "b") == [
        "broker a is left out: 1,050 bytes of its log that only it has are lost",
        "broker c is left out and not reached: what only it has is lost",
    ]
    assert left_out(None, brokers, "a")[0] == "broker b is left out; its log does not reach further"
    foreign = BrokerView(1, replace(view().report, log_id="f" * 16))
    assert "has another log" in left_out(None, {"a": view(), "b": foreign}, "a")[0]

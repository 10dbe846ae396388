"""Limits, grades and features of all proxies: changed by compare-and-set, with who has applied them."""

import pytest

from common.admin import applications, gate, groups
from common.admin.gate import GateChanges
from common.admin.groups import GroupSettings
from tests.unit.console.consoles import text_of

FIELDS = {"rate_messages": "50000", "rate_bytes": "0", "queue_ms": "250", "version": "0"}


def test_an_operator_changes_limits_and_sees_who_has_applied_them(console):
    operator = console.as_role("operator", "otto")
    assert "They are the defaults" in text_of(operator.get("/limits"))
    peer = console.store.peer()
    peer.report_applied("producer_proxy@10.0.0.1:9700/host", console.store.version())
    assert operator.post("/limits", **FIELDS, **{"grades_off.low": "on", "features_off.delay": "on"}).status_code == 303
    admin = console.parts.configuration.admin("test")
    found, version = gate.show_versioned(admin)
    assert (found.rate_messages, found.grades_off, found.features_off, version) == (50_000, ("low",), ("delay",), 1)
    assert "0 of 1 processes" in text_of(operator.get("/limits"))
    peer.report_applied("producer_proxy@10.0.0.1:9700/host", console.store.version())
    assert "1 of 1 processes" in text_of(operator.get("/limits"))
    assert operator.post("/limits", **{**FIELDS, "version": "1"}).status_code == 303
    assert gate.show(admin).grades_off == (), "a box that is not ticked is off"
    (last, _) = console.parts.log.latest("change limits")
    assert (last["old"]["grades_off"], last["new"]["grades_off"]) == (["low"], [])


def test_the_second_of_two_changes_is_refused(console):
    operator = console.as_role("operator")
    gate.set_gate(console.parts.configuration.admin("cli"), GateChanges(rate_messages=7))
    assert operator.post("/limits", **FIELDS).status_code == 409
    assert gate.show(console.parts.configuration.admin("test")).rate_messages == 7


@pytest.mark.parametrize("wrong", [{"queue_ms": "1"}, {"rate_messages": "-1"}, {"rate_bytes": "x"}, {"queue_ms": ""}])
def test_a_value_that_makes_no_sense_is_refused_at_its_field(console, wrong):
    answer = console.as_role("operator").post("/limits", **{**FIELDS, **wrong})
    assert answer.status_code == 422 and 'class="fault"' in answer.get_data(as_text=True)
    assert console.store.count("setting") == 0


def test_an_operator_limits_an_application_and_a_group_and_the_second_of_two_is_refused(console):
    admin = console.parts.configuration.admin("cli")
    applications.create(admin, "shop")
    groups.create(admin, "billing", GroupSettings())
    operator = console.as_role("operator")
    for path, show, name in (
        ("/applications/shop", applications.show, "shop"),
        ("/groups/billing", groups.show, "billing"),
    ):
        assert "Change the limits" in operator.get(path).get_data(as_text=True)
        fields = {"rate_messages": "100", "rate_bytes": "0", "version": "1"}
        assert operator.post(f"{path}/limits", **fields).status_code == 303
        assert show(admin, name)[0].rate_messages == 100
        assert operator.post(f"{path}/limits", **{**fields, "rate_messages": "7"}).status_code == 409
        assert operator.post(f"{path}/limits", **{**fields, "rate_messages": "-1"}).status_code == 422
        assert operator.post(f"{path}/limits", **{**fields, "version": "2", "rate_bytes": "9" * 19}).status_code == 422
        assert show(admin, name)[0].rate_messages == 100
    assert applications.show(admin, "shop")[0].keys, "its keys stay"
    assert operator.post("/groups/undefined/limits", rate_messages="1", rate_bytes="0", version="0").status_code == 404
    assert {row["subject"] for row in console.parts.log.latest("change limits")} == {
        "application shop",
        "group billing",
    }

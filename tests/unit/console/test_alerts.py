"""Alerts: rules, states, one alarm per cause, silences; and the page."""

import html

import pytest

from console.database.action_log import Actor
from console.database.notice_queue import WAITING
from console.database.series_history import ALL, ANSWERS, SeriesKey
from console.errors import RequestConflict
from console.watching.alert_rules import DEFAULTS, NAMES
from tests.unit.console.consoles import RunningConsole, text_of

OTTO = Actor("otto", "10.0.0.1")
BEHIND = {SeriesKey("group:billing", "lag_s"): 900.0, SeriesKey(ALL, ANSWERS): 1.0}
CAUGHT_UP = {SeriesKey("group:billing", "lag_s"): 0.0, SeriesKey(ALL, ANSWERS): 1.0}


@pytest.fixture
def told(console):
    """A function that lists the titles of all notices, oldest first."""
    console.parts.notices.add_channel(OTTO, "ops", "webhook", "https://example.org/", True, True)
    return lambda: [each["title"] for each in reversed(console.parts.notices.latest())]


def look(console: RunningConsole, sample: dict, seconds: int = 0) -> list[tuple[str, str]]:
    """Look at the same sample every 10 seconds for so long; the open alerts with their states."""
    for _ in range(0, seconds + 1, 10):
        console.parts.alert_watch.look(sample)
        console.clock.advance(10_000)
    return sorted((alert.rule, alert.state) for alert in console.parts.alerts.open())


def test_an_alert_is_pending_then_fires_once_and_is_resolved_with_one_notice_each(console, told):
    assert look(console, BEHIND, 100) == [("lag", "pending")] and told() == []
    assert look(console, BEHIND, 300) == [("lag", "firing")]
    assert told() == ["Firing: lag, group billing"]
    look(console, BEHIND, 600)
    assert look(console, CAUGHT_UP, 30) == [("lag", "firing")]
    assert look(console, BEHIND) == [("lag", "firing")], "it goes to and fro: the same alert"
    assert look(console, CAUGHT_UP, 70) == []
    assert told() == ["Firing: lag, group billing", "Resolved: lag, group billing"]
    (ended,) = console.parts.alerts.resolved()
    assert ended.sentence == "Group billing is 15 min behind." and ended.resolved_ms > ended.fired_ms > ended.began_ms


def test_a_value_that_is_good_again_before_its_time_is_no_alert(console, told):
    look(console, BEHIND, 100)
    assert look(console, CAUGHT_UP) == [] and told() == [] and console.parts.alerts.resolved() == []


def test_an_engine_that_is_away_is_one_alarm_and_not_four(console, told):
    sample = {
        SeriesKey(ALL, ANSWERS): 0.0, SeriesKey(ALL, "buffer_s"): 400.0, SeriesKey(ALL, "in"): 0.0,
        SeriesKey(ALL, "refused"): 50.0, SeriesKey("broker:engine-r2", "replica_gap_s"): 400.0,
    }  # fmt: skip
    assert look(console, sample, 300) == [(name, "firing") for name in ("buffer", "engine", "refused", "replication")]
    assert told() == ["Firing: engine, the installation"]
    page = text_of(console.as_role("viewer").get("/alerts"))
    assert page.count("same cause as another one") == 3


def test_messages_and_time_of_one_group_are_one_alarm_and_another_group_is_a_second_one(console, told):
    sample = BEHIND | {SeriesKey("group:billing", "lag"): 5e6, SeriesKey("group:audit", "lag"): 5e6}
    look(console, sample, 400)
    assert sorted(told()) == ["Firing: lag, group billing", "Firing: lag_messages, group audit"]


def test_what_is_not_measured_keeps_its_alert_and_what_is_gone_for_an_hour_is_resolved(console, told):
    look(console, BEHIND, 320)
    assert look(console, {SeriesKey(ALL, ANSWERS): 1.0}, 600) == [("lag", "firing")]
    assert look(console, {SeriesKey(ALL, ANSWERS): 1.0}, 3_600) == []
    assert told()[-1] == "Resolved: lag, group billing"


def test_a_silenced_alert_is_told_when_the_silence_ends_and_it_still_fires(console, told):
    operator = console.as_role("operator", "otto")
    fields = {"rule": "lag", "subject": "group:bill*", "hours": "1", "reason": "Billing is being moved"}
    assert operator.post("/alerts/silences", **fields).status_code == 303
    assert look(console, BEHIND, 400) == [("lag", "firing")] and told() == []
    page = text_of(operator.get("/alerts"))
    assert "silenced" in page and "Billing is being moved" in page
    look(console, BEHIND, 3_600)
    assert told() == ["Firing: lag, group billing"]
    assert "silence alerts" in text_of(console.as_role("operator", "olaf").get("/audit"))


def test_a_silenced_alert_that_ends_in_silence_is_never_told(console, told):
    silence_id = console.parts.alerts.silence(OTTO, "*", "*", "Maintenance", 3_600_000, NAMES)
    look(console, BEHIND, 400)
    look(console, CAUGHT_UP, 100)
    console.parts.alerts.end_silence(OTTO, silence_id)
    look(console, CAUGHT_UP, 20)
    assert told() == [] and console.parts.alerts.silences() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"rule": "nothing"}, {"subject": "<script>"}, {"subject": ""}, {"hours": "0"}, {"hours": "99999"},
        {"hours": "-1"}, {"hours": "nan"}, {"reason": " "}, {"reason": "x" * 301}, {"subject": "x" * 301},
    ],
)  # fmt: skip
def test_a_silence_that_makes_no_sense_is_refused_at_its_field(console, fields):
    good = {"rule": "lag", "subject": "group:billing", "hours": "1", "reason": "because"}
    answer = console.as_role("operator").post("/alerts/silences", **{**good, **fields})
    assert answer.status_code == 422 and 'class="fault"' in answer.get_data(as_text=True)
    assert console.parts.alerts.silences() == []


def test_an_operator_changes_a_rule_and_the_second_of_two_is_told(console, told):
    otto, olaf = console.as_role("operator", "otto"), console.as_role("operator", "olaf")
    fields = {"threshold": "1000", "hold_s": "0", "is_on": "on", "version": "0"}
    assert otto.post("/alerts/rules/lag", **fields).status_code == 303
    answer = olaf.post("/alerts/rules/lag", **{**fields, "threshold": "5"})
    assert answer.status_code == 409 and "changed meanwhile" in text_of(answer)
    assert look(console, BEHIND, 600) == []
    assert otto.post("/alerts/rules/lag", **{**fields, "threshold": "10", "version": "1"}).status_code == 303
    assert look(console, BEHIND, 10) == [("lag", "firing")]
    assert otto.post("/alerts/rules/lag", threshold="10", hold_s="0", version="2").status_code == 303
    assert look(console, BEHIND, 10) == [], "a rule that is switched off ends its alerts"
    for wrong in ({"threshold": "0"}, {"threshold": "x"}, {"hold_s": "-5"}, {"hold_s": "1e9"}, {"threshold": ""}):
        assert otto.post("/alerts/rules/lag", **{**fields, **wrong, "version": "3"}).status_code == 422, wrong
    assert otto.post("/alerts/rules/nothing", **fields).status_code == 422


def test_all_rules_are_on_at_first_and_each_has_words(console):
    page = html.unescape(text_of(console.as_role("viewer").get("/alerts")))
    assert all(rule.is_on and rule.about in page for rule in DEFAULTS)
    assert "No alert is open" in page


def test_two_consoles_on_one_database_make_one_alert_and_one_notice(console, told):
    other = type(console.parts.alert_watch)(console.parts.alerts, console.clock)
    for _ in range(40):
        console.parts.alert_watch.look(BEHIND)
        other.look(BEHIND)
        console.clock.advance(10_000)
    assert len(console.parts.alerts.open()) == 1 and told() == ["Firing: lag, group billing"]
    with pytest.raises(RequestConflict):
        console.parts.alerts.set_bounds(OTTO, "lag", 0, {"is_on": True, "threshold": 1.0, "hold_s": 1}, {})
        console.parts.alerts.set_bounds(OTTO, "lag", 0, {"is_on": True, "threshold": 2.0, "hold_s": 1}, {})


def test_requests_are_told_when_they_are_asked_commented_and_decided(console, told):
    owner, operator = console.as_role("owner", "olga"), console.as_role("operator", "otto")
    number = owner.ask()
    owner.post(f"/requests/{number}/comment", text="Soon, please")
    operator.post(f"/requests/{number}/approve", version="1", reason="Fits")
    assert told() == [
        "olga asks for topic orders", "olga commented on the request for topic orders",
        "otto approved the request for topic orders", "otto created topic orders",
    ]  # fmt: skip
    notices = console.parts.notices.latest()
    assert notices[1]["body"]["text"] == "Fits" and notices[1]["event"] == "request.approved"
    owner.ask(name="drafted", action="draft")
    assert len(told()) == 4 and {each["state"] for each in notices} == {WAITING}

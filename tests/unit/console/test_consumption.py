"""Requests for consumption: form, preview, policy, decision, the group and the grants in the configuration store."""

from contextlib import contextmanager

import pytest

from common.admin import applications, groups, topics
from common.admin.applications import Grants
from common.admin.groups import GroupSettings
from common.admin.topics import TopicSettings
from common.config.definitions import PULL_TOPIC, GroupDefinition
from common.config.errors import StoreUnavailable
from console.asking.approval_policy import ApprovalPolicy
from console.asking.consumption_wish import DEFAULTS, parse_consumption
from console.asking.group_change import fields_of_group
from console.errors import InvalidForm
from console.installation.broker_queries import Answers, BrokerLinks
from tests.unit.console.consoles import SETUP, text_of

WISH = {
    **DEFAULTS, "name": "billing", "description": "Bills for orders", "application": "shop", "topics": "orders\nrefunds",
    "filter": "country IN ('DE', 'FR')", "attempts_max": "5", "retry": "1000,5000", "reads_dead_letters": "on",
    "rate_messages": "50", "dead_letter_hours": "24",
}  # fmt: skip


@pytest.fixture
def admin(console):
    """Topics orders and refunds, and application shop, which may only send."""
    made = console.parts.configuration.admin("cli")
    topics.create(made, ["orders", "refunds"], TopicSettings())
    applications.create(made, "shop", Grants(send=("orders",)))
    return made


@pytest.fixture
def owner(console, admin):
    return console.as_role("owner", "olga")


@pytest.fixture
def operator(console):
    return console.as_role("operator", "otto")


def ask(console, browser, **fields: str) -> int:
    answer = browser.post("/consumption", **{**WISH, "team": str(console.team_id), **fields})
    assert answer.status_code == 303, text_of(answer)
    return int(answer.location.rpartition("/")[2])


def own(console, *names: str) -> None:
    """Make team shop the owner of topics, as an applied request does."""
    for name in names:
        number = console.parts.requests.add(SETUP, console.team_id, {"name": name, "description": "x"}, {}, "approved")
        console.parts.requests.move(SETUP, number, ("approved", 1), "applied")


def test_an_operator_approves_and_the_group_is_defined_and_granted(console, admin, owner, operator):
    number = ask(console, owner)
    assert not groups.is_defined(admin, "billing") and applications.show(admin, "shop")[0].patterns("group") == ()
    page = text_of(operator.get(f"/requests/{number}"))
    assert "for consumption" in page and "of no team" in page and "country IN" in page and "dead letters" in page
    assert operator.post(f"/requests/{number}/approve", version="1").status_code == 303
    group, version = groups.show(admin, "billing")
    assert (group.topics, group.attempts_max, group.rate_messages) == (("orders", "refunds"), 5, 50)
    assert (group.filter, group.retry.delays_ms) == (WISH["filter"], (1000, 5000))
    assert (group.start, group.start_at_ms, group.dead_letter_retention_ms) == (
        "latest",
        console.clock.now_ms(),
        86_400_000,
    )
    app = applications.show(admin, "shop")[0]
    assert (app.patterns("topic"), app.patterns("group"), app.patterns("dead_letters")) == (
        ("orders", "refunds"), ("billing",), ("billing",),
    )  # fmt: skip
    assert app.patterns("send") == ("orders",) and len(app.keys) == 1, "what it had stays"
    request = console.parts.requests.get(number)
    assert (request.state, request.written_version) == ("applied", version)
    assert request.kind_versions == {
        "group": console.store.version()["group"],
        "application": console.store.version()["application"],
    }
    assert console.parts.requests.owner_of_group("billing")[1:] == ("shop", "Bills for orders")
    journal = text_of(operator.get("/audit?of=store"))
    assert "console:otto" in journal and "group billing" in journal and "application shop" in journal


def test_the_page_waits_for_both_kinds_to_be_applied(console, owner, operator):
    peer = console.store.peer()
    number = ask(console, owner)
    operator.post(f"/requests/{number}/approve", version="1")
    now = console.store.version()
    peer.report_applied("consumer_proxy@10.0.0.1:9701/host", {**now, "application": now["application"] - 1})
    assert "0 of 1 processes have applied it" in text_of(owner.get(f"/requests/{number}/applied"))
    peer.report_applied("consumer_proxy@10.0.0.1:9701/host", now)
    part = text_of(owner.get(f"/requests/{number}/applied"))
    assert "All 1 processes have applied it" in part and "group is defined and granted" in part


def test_a_crash_between_group_and_grant_is_made_good_and_nothing_is_done_twice(
    console, admin, owner, operator, monkeypatch
):
    number = ask(console, owner)

    def lose_contact(*arguments, **named):
        raise StoreUnavailable("the connection broke")

    monkeypatch.setattr(applications, "grant", lose_contact)
    assert operator.post(f"/requests/{number}/approve", version="1").status_code == 503
    assert groups.is_defined(admin, "billing"), "the group comes first: without it nothing would be filtered"
    monkeypatch.undo()
    groups.set_paused(admin, "billing", True)
    console.clock.advance(60_000)
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == "applied"
    assert groups.show(admin, "billing")[0].paused and applications.show(admin, "shop")[0].patterns("group") == (
        "billing",
    )


def test_a_group_of_the_name_that_is_another_one_and_an_application_that_is_gone_grant_nothing(
    console, admin, owner, operator
):
    number = ask(console, owner)
    groups.create(admin, "billing", GroupSettings(attempts_max=3))
    assert operator.post(f"/requests/{number}/approve", version="1").status_code == 503
    assert applications.show(admin, "shop")[0].patterns("topic") == ()
    assert "billing" in console.parts.requests.get(number).problem
    assert operator.post(f"/requests/{number}/reject", version="2", reason="taken").status_code == 303
    other = ask(console, owner, name="books")
    applications.delete(admin, "shop")
    assert operator.post(f"/requests/{other}/approve", version="1").status_code in (404, 503)
    assert not groups.is_defined(admin, "books"), "nothing is written for an application that is not there"


class Engines:
    """Stands for engines that have positions of these groups."""

    def __init__(self, *pulled: str, faults: tuple[str, ...] = ()) -> None:
        self.pulled, self.faults = pulled, [*faults]

    @contextmanager
    def open(self):
        yield BrokerLinks({}, self.faults)

    def ask(self, opened: BrokerLinks, verb: str, rows: str, group: str) -> Answers:
        return Answers([{"topic": "orders"}] if group in self.pulled else [], opened.faults)


def test_a_group_that_is_pulled_without_a_definition_is_nobodys_to_define(console, owner):
    console.with_parts(brokers=Engines("billing"))
    answer = console.browser(owner.session).post("/consumption", **{**WISH, "team": str(console.team_id)})
    assert answer.status_code == 422 and "is pulled already, without a definition" in text_of(answer)


def test_while_an_engine_does_not_answer_a_person_decides(console, admin, owner):
    console.parts.policies.replace(SETUP, ApprovalPolicy(is_on=True).to_value(), 0)
    own(console, "orders")
    console.with_parts(brokers=Engines(faults=("The engine does not answer.",)))
    number = ask(console, console.browser(owner.session), topics="orders")
    assert console.parts.requests.get(number).state == "requested"


def test_the_policy_approves_what_stays_within_the_team_only(console, admin, owner):
    console.with_parts(brokers=Engines())
    owner = console.browser(owner.session)
    console.parts.policies.replace(SETUP, ApprovalPolicy(is_on=True).to_value(), 0)
    own(console, "orders")
    preview = text_of(owner.post("/consumption/check", **{**WISH, "team": str(console.team_id)}))
    assert "Topic refunds does not belong to the team." in preview and "of team shop" in preview
    waits = ask(console, owner)
    assert console.parts.requests.get(waits).state == "requested"
    at_once = ask(console, owner, name="books", topics="orders")
    assert console.parts.requests.get(at_once).state == "applied"
    late = ask(console, owner, name="late", topics="orders", dead_letter_hours="1000")
    assert console.parts.requests.get(late).state == "requested"


def test_a_draft_is_handed_in_and_a_second_request_for_the_group_is_refused(console, owner):
    number = ask(console, owner, action="draft")
    answer = owner.post("/consumption", **{**WISH, "team": str(console.team_id)})
    assert answer.status_code == 422 and "asks for this name already" in text_of(answer)
    assert owner.post(f"/requests/{number}/submit", version="1").status_code == 303
    assert owner.ask(name="billing", team=str(console.team_id)), "a topic may have the name of a group"


def test_the_team_that_asked_for_a_group_may_act_on_it_and_no_other(console, admin, owner, operator, monkeypatch):
    number = ask(console, owner)
    operator.post(f"/requests/{number}/approve", version="1")
    assert owner.post("/groups/billing/pause").status_code == 303
    assert groups.show(admin, "billing")[0].paused
    eve = console.browser(console.account("eve", "owner", console.other_team_id))
    assert eve.post("/groups/billing/resume").status_code == 403


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "a b", "Invalid name"), ("name", "", "name"), ("topics", "", "Name 1 to 50"), ("topics", "a/b", "is not a name"),
        ("topics", " ".join(f"t{n}" for n in range(51)), "Name 1 to 50"), ("topics", "_dlq.x", "dead letters"),
        ("filter", "amount >", "fault"), ("retry", "soon", "1000,5000"), ("retry", "-1", "1000,5000"), ("retry", "9" * 3000, "1000"),
        ("order", "any", "Choose one of"), ("on_failure", "park", "Without an order"), ("start", "time", "Choose"),
        ("lease_s", "0", "whole number"), ("attempts_max", "1001", "whole number"), ("rate_messages", "-1", "whole number"),
        ("application", "", "application"), ("application", "../x", "application"), ("description", " ", "Say in"),
    ],
)  # fmt: skip
def test_a_field_that_is_wrong_is_named_with_its_rule(field, value, words):
    with pytest.raises(InvalidForm) as caught:
        parse_consumption({**WISH, field: value})
    assert list(caught.value.faults) == [field] and words.lower() in caught.value.faults[field].lower()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"application": "nobody"}, "There is no application nobody"), ({"topics": "orders nothing"}, "There is no topic nothing"),
        ({"team": "999"}, "Choose one of your teams"), ({"name": "<b>"}, "not a name"), ({"filter": "'"}, "The filter has a fault"),
    ],
)  # fmt: skip
def test_a_request_that_names_what_is_not_there_is_refused(console, owner, fields, words):
    answer = owner.post("/consumption", **{**WISH, "team": str(console.team_id), **fields})
    page = answer.get_data(as_text=True)
    assert (
        answer.status_code == 422
        and (words in text_of(answer) or "Invalid name" in text_of(answer))
        and "<b>'" not in page
    )
    assert console.parts.requests.list() == []


def test_a_program_asks_by_the_api_with_a_list_of_topics(console, admin):
    session = console.account("paul", "owner", console.team_id)
    token = console.parts.tokens.make(SETUP, session.account, "test", "owner", 1)
    asked = {**WISH, "team": "shop", "topics": ["orders", "refunds"], "reads_dead_letters": True, "rate_messages": 50}
    answer = console.visitor().post(
        "/api/v1/requests/consumption", json=asked, headers={"Authorization": f"Bearer {token}"}
    )
    made = answer.get_json()
    assert (made["kind"], made["name"], made["state"]) == ("consumption", "billing", "requested")
    assert made["asked"]["topics"] == ["orders", "refunds"] and made["asked"]["reads_dead_letters"] is True


def test_notices_tell_of_each_event(console, owner, operator):
    console.parts.notices.add_channel(SETUP, "ops", "email", "ops@example.org", False, True)
    number = ask(console, owner)
    operator.post(f"/requests/{number}/comment", text="Why?")
    operator.post(f"/requests/{number}/approve", version="1")
    assert [each["title"] for each in reversed(console.parts.notices.latest())] == [
        "olga asks for group billing", "otto commented on the request for group billing",
        "otto approved the request for group billing", "otto created group billing",
    ]  # fmt: skip


def test_hostile_texts_are_shown_as_text(console, owner):
    hostile = "<img src=x onerror=alert(1)>\u202e evil"
    number = ask(console, owner, description=hostile, filter="name = '<script>\u202e'")
    page = owner.get(f"/requests/{number}").get_data(as_text=True)
    assert (
        "<img" not in page
        and "<script>\u202e" not in page
        and "⟨U+202E⟩" in page
        and "\u202e" not in page.partition("<form")[0]
    )
    for field in ("name", "topics", "application", "filter", "description"):
        preview = owner.post("/consumption/check", **{**WISH, field: hostile}).get_data(as_text=True)
        assert "<img" not in preview, field


def change_fields(admin, **changed: str) -> dict[str, str]:
    group, version = groups.show(admin, "billing")
    return {**fields_of_group(group), "version": str(version), "reason": "Too slow", **changed}


@pytest.fixture
def billing(console, admin, owner, operator):
    """A group of team shop that was asked for and approved."""
    operator.post(f"/requests/{ask(console, owner)}/approve", version="1")
    return groups.show(admin, "billing")[0]


def test_a_change_of_a_group_is_shown_from_to_and_written_to_the_version_that_was_seen(
    console, admin, owner, operator, billing
):
    answer = owner.post("/groups/billing/change", **change_fields(admin, lease_s="60", filter="", retry=""))
    number = int(answer.location.rpartition("/")[2])
    page = text_of(operator.get(f"/requests/{number}"))
    assert "for a change" in page and "30 seconds" in page and "1 minute" in page and "Too slow" in page
    groups.set_group(admin, "billing", GroupSettings(attempts_max=9))
    refused = operator.post(f"/requests/{number}/approve", version="1")
    assert refused.status_code == 409 and "Group billing was changed since" in text_of(refused)
    assert "The group was changed since" in text_of(operator.get(f"/requests/{number}"))
    assert operator.post(f"/requests/{number}/rebase", version="1").status_code == 303
    assert operator.post(f"/requests/{number}/approve", version="2").status_code == 303
    now = groups.show(admin, "billing")[0]
    assert (now.invisible_ms, now.filter, now.attempts_max, now.topics) == (60_000, "", 9, billing.topics)
    assert now.retry == GroupDefinition.from_value("billing", {}).retry and now.start_at_ms == billing.start_at_ms
    assert console.parts.requests.owner_of_group("billing")[1:] == ("shop", "Bills for orders"), "its description stays"


@pytest.mark.parametrize(
    ("changed", "field"),
    [({}, ""), ({"lease_s": "x"}, "lease_s"), ({"filter": "a >"}, "filter"), ({"on_failure": "park"}, ""), ({"reason": " "}, "reason"),
     ({"retry": "soon"}, "retry"), ({"order": "any"}, "order")],
)  # fmt: skip
def test_a_change_of_a_group_that_makes_no_sense_is_refused(admin, owner, billing, changed, field):
    answer = owner.post("/groups/billing/change", **change_fields(admin, **changed))
    page = answer.get_data(as_text=True)
    assert answer.status_code == 422 and (f'id="{field}-fault"' in page if field else "banner bad" in page)


def test_settings_that_the_form_cannot_say_stay_when_they_are_left_alone(admin, owner, operator, billing):
    groups.set_group(admin, "billing", GroupSettings(rate_bytes=1_500, invisible_ms=1_500))
    answer = owner.post("/groups/billing/change", **change_fields(admin, attempts_max="7"))
    number = int(answer.location.rpartition("/")[2])
    operator.post(f"/requests/{number}/approve", version="1")
    now = groups.show(admin, "billing")[0]
    assert (now.rate_bytes, now.invisible_ms, now.attempts_max) == (1_500, 1_500, 7)


def test_only_the_groups_team_and_operators_ask_for_its_change(console, admin, billing):
    eve = console.browser(console.account("eve", "owner", console.other_team_id))
    assert eve.get("/groups/billing/change").status_code == 403
    assert eve.post("/groups/billing/change", **change_fields(admin, attempts_max="7")).status_code == 403
    assert console.as_role("operator", "olaf").get("/groups/nothing/change").status_code == 404


def test_more_topics_are_asked_for_with_the_application_that_gets_their_grants_after_the_group(
    console, admin, owner, operator, billing, monkeypatch
):
    topics.create(admin, ["parcels"], TopicSettings())
    applications.create(admin, "other", Grants())
    wanted = change_fields(admin, topics="orders\r\nparcels")
    for application, words in (("", "There is no application"), ("other", "may not pull as the group")):
        refused = owner.post("/groups/billing/change", **wanted, application=application)
        assert refused.status_code == 422 and words in text_of(refused)
    refused = owner.post("/groups/billing/change", **{**wanted, "topics": "orders, nowhere"}, application="shop")
    assert refused.status_code == 422 and "There is no topic nowhere" in text_of(refused)
    answer = owner.post("/groups/billing/change", **wanted, application="shop")
    assert answer.status_code == 303, text_of(answer)
    number = int(answer.location.rpartition("/")[2])
    page = text_of(operator.get(f"/requests/{number}"))
    assert "gets grants to pull parcels" in page and "of no team" in page and "orders, refunds" in page
    grant = applications.grant

    def fail(*arguments):
        monkeypatch.setattr(applications, "grant", grant)
        raise StoreUnavailable("the connection broke")

    monkeypatch.setattr(applications, "grant", fail)
    assert operator.post(f"/requests/{number}/approve", version="1").status_code == 503
    assert groups.show(admin, "billing")[0].topics == ("orders", "parcels")
    assert not applications.show(admin, "shop")[0].allows(PULL_TOPIC, "parcels"), "the group is first"
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == "applied"
    assert applications.show(admin, "shop")[0].allows(PULL_TOPIC, "parcels")
    assert applications.show(admin, "shop")[0].allows(PULL_TOPIC, "refunds"), "nothing is taken away"

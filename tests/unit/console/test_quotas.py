"""Quotas of teams: what they count, how they are set, and what they do to requests."""

import pytest

from common.admin import topics
from common.admin.topics import TopicSettings
from console.asking.team_quota import TeamQuota, TeamUse
from console.errors import RequestConflict
from tests.unit.console.consoles import SETUP, text_of

GIB = 1 << 30
ON = {"is_on": True, "peak_messages_max": 10_000, "kept_gib_max": 1_000, "retention_hours_max": 10_000}
NUMBERS = {"topics_max": "2", "messages_max": "400", "day_gib_max": "2"}


@pytest.fixture
def owner(console):
    console.parts.policies.replace(SETUP, ON, 0)
    return console.as_role("owner")


def state_of(console, request_id):
    return console.parts.requests.get(request_id).state


def set_quota(console, **bounds):
    console.parts.quotas.replace(
        SETUP, console.team_id, TeamQuota(**bounds).to_value(), console.parts.quotas.of(console.team_id).version
    )


@pytest.mark.parametrize(
    ("quota", "more", "words"),
    [
        (TeamQuota(topics_max=2), TeamUse(1, 10, 1), "3 topics"),
        (TeamQuota(messages_max=100), TeamUse(1, 51, 1), "101 messages/s"),
        (TeamQuota(day_gib_max=1), TeamUse(0, 0, GIB), "1.5 GiB per day"),
        (TeamQuota(messages_max=100), TeamUse(1, 0, 0, 1), "without a limit"),
        (TeamQuota(messages_max=10), TeamUse(1, 0, 1), ""),
        (TeamQuota(), TeamUse(9, 9, GIB), ""),
    ],
)
def test_a_request_passes_a_bound_that_it_adds_to(quota, more, words):
    found = quota.excess(TeamUse(2, 50, GIB // 2), more)
    assert (words in found[0] and len(found) == 1) if words else found == []


def test_the_policy_approves_up_to_the_quota_and_no_further(console, owner):
    set_quota(console, topics_max=2)
    states = [state_of(console, owner.ask(name=name)) for name in ("one", "two", "three")]
    assert states == ["applied", "applied", "requested"]


def test_the_preview_and_the_requests_page_show_the_excess(console, owner):
    set_quota(console, messages_max=200)
    owner.ask(name="one")
    preview = text_of(owner.post("/requests/check", name="two", description="x", **wish(console)))
    assert "300 messages/s of the team in all: its quota is 200." in preview
    made = owner.ask(name="two")
    page = text_of(console.as_role("operator").get(f"/requests/{made}"))
    assert "300 messages/s of the team in all: its quota is 200." in page and "Approve it beyond the quota" in page


def wish(console):
    from console.asking.topic_wish import DEFAULTS

    return {
        **{name: value for name, value in DEFAULTS.items() if name not in ("name", "description")},
        "team": str(console.team_id),
    }


def test_an_operator_approves_beyond_the_quota_only_where_the_form_says_so(console, owner):
    set_quota(console, topics_max=1)
    owner.ask(name="one")
    made, operator = owner.ask(name="two"), console.as_role("operator")
    refused = operator.post(f"/requests/{made}/approve", version=1)
    assert refused.status_code == 409 and "its quota is 1" in text_of(refused)
    assert state_of(console, made) == "requested" and console.store.get("topic", "two") is None
    assert operator.post(f"/requests/{made}/approve", version=1, beyond_quota="on").status_code == 303
    assert state_of(console, made) == "applied"
    assert any("Beyond the quota: 2 topics" in row.text for row in console.parts.requests.events(made))


def test_a_change_that_raises_a_topics_limit_counts(console, owner):
    owner.ask(name="one")
    set_quota(console, messages_max=200)
    found, version = topics.show(console.parts.configuration.admin("test"), "one")
    made = console.parts.requests.add_change(
        SETUP, console.team_id, "one", "more", (found.to_value(), version), {"rate_messages": 500}
    )
    assert "500 messages/s of the team" in text_of(console.as_role("operator").get(f"/requests/{made}"))


def test_the_configuration_says_what_a_topic_counts_and_a_deleted_one_counts_no_more(console, owner):
    owner.ask(name="one")
    admin, held = console.parts.configuration.admin("test"), console.parts.quota_check.held
    topics.set_topic(admin, "one", TopicSettings(rate_messages=7))
    assert held(console.team_id)[:2] == (1, 7)
    topics.delete(admin, "one")
    assert held(console.team_id) == TeamUse()


def test_an_operator_sets_a_quota_and_the_second_of_two_is_refused(console):
    operator = console.as_role("operator")
    path = f"/quotas/{console.team_id}"
    assert operator.post(path, version=0, **NUMBERS).status_code == 303
    assert "the quota was changed" in text_of(operator.post(path, version=0, **NUMBERS)).lower()
    assert console.parts.quotas.of(console.team_id) == (TeamQuota(2, 400, 2).to_value(), 1)
    assert "0 of 400" in text_of(operator.get("/quotas"))
    (row,) = console.parts.log.latest("change quota")
    assert (row["subject"], row["old"], row["new"]["topics_max"]) == ("team shop", None, 2)


def test_a_faulty_quota_is_shown_at_its_field_and_nothing_is_stored(console):
    answer = console.as_role("operator").post(
        f"/quotas/{console.team_id}", version=0, **{**NUMBERS, "topics_max": "-1"}
    )
    assert answer.status_code == 422 and "Use a whole number from 0" in text_of(answer)
    assert console.parts.quotas.of(console.team_id).version == 0


def test_a_quota_of_no_team_is_refused(console):
    with pytest.raises(RequestConflict, match="no such team"):
        console.parts.quotas.replace(SETUP, 99, {}, 0)

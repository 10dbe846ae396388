"""The way of a request: form, preview, policy, decision, the topic in the configuration store."""

import pytest

from common.admin import topics
from common.admin.topics import TopicSettings
from common.config.errors import StoreUnavailable
from console.asking import request_approval
from console.asking.approval_policy import ApprovalPolicy
from console.asking.disk_use import disk_use
from console.asking.topic_wish import parse_wish
from console.database.user_requests import APPLIED, APPROVED, TOPIC
from console.errors import InvalidForm
from tests.unit.console.consoles import SETUP, WISH, text_of

OPEN_POLICY = ApprovalPolicy(is_on=True)


def test_an_operator_approves_and_the_topic_exists_with_what_was_asked_for(console):
    owner, operator = console.as_role("owner", "olga"), console.as_role("operator", "otto")
    number = owner.ask(peak_messages="5000", retention_hours="24", durability="fsync", body_format="json")
    assert "Waiting for an operator" in text_of(operator.get("/"))
    assert operator.post(f"/requests/{number}/approve", version="1", reason="Fits").status_code == 303
    topic, version = topics.show(console.parts.configuration.admin("test"), "orders")
    assert (topic.queues, topic.durability, topic.retention_ms, topic.rate_messages) == (8, "fsync", 86_400_000, 7500)
    request = console.parts.requests.get(number)
    assert (request.state, request.written_version, request.kind_versions) == (APPLIED, version, {"topic": 1})
    assert console.parts.requests.owner_of("orders")[1:] == ("shop", WISH["description"])
    page = text_of(owner.get(f"/requests/{number}"))
    assert "otto approved" in page and "Fits" in page and "The topic exists" in page
    journal = text_of(operator.get("/audit?of=store"))
    assert "console:otto" in journal and "topic orders" in journal


def test_the_page_shows_which_processes_have_applied_the_topic(console):
    owner, operator = console.as_role("owner"), console.as_role("operator")
    store, peer = console.store, console.store.peer()
    peer.report_applied("producer_proxy@10.0.0.1:9700/host", {"topic": 0})
    number = owner.ask()
    operator.post(f"/requests/{number}/approve", version="1")
    assert "0 of 1 processes have applied it" in text_of(owner.get(f"/requests/{number}/applied"))
    assert "load delay:1s" in owner.get(f"/requests/{number}/applied").get_data(as_text=True)
    peer.report_applied("producer_proxy@10.0.0.1:9700/host", store.version())
    part = owner.get(f"/requests/{number}/applied")
    assert "All 1 processes have applied it" in text_of(part) and "load delay" not in part.get_data(as_text=True)


def test_of_two_tabs_that_decide_the_second_is_told_what_the_first_did(console):
    number = console.as_role("owner").ask()
    otto, olaf = console.as_role("operator", "otto"), console.as_role("operator", "olaf")
    assert otto.post(f"/requests/{number}/reject", version="1", reason="Use orders.paid").status_code == 303
    answer = olaf.post(f"/requests/{number}/approve", version="1")
    assert answer.status_code == 409 and "otto was faster, the request is rejected now" in text_of(answer)
    assert console.store.count("topic") == 0


@pytest.mark.parametrize("version", ["0", "2", "", "x", "9" * 400, "-1"])
def test_a_stale_form_changes_nothing(console, version):
    number = console.as_role("owner").ask()
    assert console.as_role("operator").post(f"/requests/{number}/approve", version=version).status_code == 409
    assert console.parts.requests.get(number).state == "requested"


def test_a_rejection_needs_a_reason(console):
    number = console.as_role("owner").ask()
    answer = console.as_role("operator").post(f"/requests/{number}/reject", version="1", reason=" ")
    assert answer.status_code == 422 and "Say why" in text_of(answer)


def test_with_the_store_away_an_approval_is_kept_and_applied_when_it_is_back(console):
    number = console.as_role("owner").ask()
    operator = console.as_role("operator")
    console.store.set_available(False, console.clock.now_ms())
    answer = operator.post(f"/requests/{number}/approve", version="1")
    assert answer.status_code == 503 and "approved, but not applied yet" in text_of(answer)
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == APPROVED
    console.clock.advance(5_000)
    page = text_of(operator.get("/topics"))
    assert "The configuration store does not answer" in page
    console.store.set_available(True)
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == APPLIED
    assert topics.show(console.parts.configuration.admin("test"), "orders")[0].queues == 8


def test_a_write_whose_answer_was_lost_counts_when_the_topic_is_exactly_as_asked_for(console, monkeypatch):
    number = console.as_role("owner").ask()
    written = console.store.put_many

    def lose_answer(kind, changes):
        written(kind, changes)
        monkeypatch.undo()
        raise StoreUnavailable("the connection broke")

    monkeypatch.setattr(console.store, "put_many", lose_answer)
    assert console.as_role("operator").post(f"/requests/{number}/approve", version="1").status_code == 503
    assert console.parts.requests.get(number).state == APPROVED
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == APPLIED


def test_an_approval_whose_topic_the_keeper_writes_at_the_same_moment_is_no_conflict(console, monkeypatch):
    number, approval = console.as_role("owner").ask(), console.parts.approval
    writer = request_approval.WRITERS[TOPIC]

    def write_twice(admin, request):
        monkeypatch.undo()
        approval.resume()
        return writer.write(admin, request)

    monkeypatch.setitem(request_approval.WRITERS, TOPIC, writer._replace(write=write_twice))
    assert console.as_role("operator").post(f"/requests/{number}/approve", version="1").status_code == 303
    assert console.parts.requests.get(number).state == APPLIED
    assert [each.kind for each in console.parts.requests.events(number)] == ["requested", "approved", "applied"]


def test_a_topic_of_the_name_that_is_another_one_is_a_conflict_and_can_be_rejected(console):
    number = console.as_role("owner").ask()
    operator = console.as_role("operator")
    topics.create(console.parts.configuration.admin("cli"), ["orders"], TopicSettings(queues=3))
    answer = operator.post(f"/requests/{number}/approve", version="1")
    assert answer.status_code == 503 and "exists already" in text_of(answer)
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == APPROVED
    assert operator.post(f"/requests/{number}/reject", version="2", reason="The name is taken").status_code == 303
    assert console.parts.requests.get(number).state == "rejected"
    assert topics.show(console.parts.configuration.admin("test"), "orders")[0].queues == 3


def test_within_the_policy_a_request_is_applied_at_once_and_beyond_it_the_reasons_are_shown(console):
    owner, operator = console.as_role("owner"), console.as_role("operator")
    fields = {name: str(value) for name, value in OPEN_POLICY.to_value().items()} | {"is_on": "on"}
    assert operator.post("/policy", version="0", **fields).status_code == 303
    assert operator.post("/policy", version="0", **fields).status_code == 409, "the second tab"
    at_once = owner.ask()
    assert console.parts.requests.get(at_once).state == APPLIED
    assert "(policy) approved" in text_of(owner.get(f"/requests/{at_once}"))
    beyond = {**WISH, "name": "logs", "peak_messages": "5000", "retention_hours": "1000"}
    preview = text_of(owner.post("/requests/check", **{**beyond, "team": str(console.team_id)}))
    assert "An operator decides" in preview and "5,000 messages/s at the peak: the policy allows 1,000." in preview
    number = owner.ask(**{name: beyond[name] for name in ("name", "peak_messages", "retention_hours")})
    assert console.parts.requests.get(number).state == "requested"


def test_a_draft_waits_for_its_owner_and_a_request_can_be_withdrawn(console):
    owner = console.as_role("owner")
    number = owner.ask(action="draft")
    assert console.parts.requests.get(number).state == "draft"
    assert owner.post(f"/requests/{number}/submit", version="1").status_code == 303
    assert console.parts.requests.get(number).state == "requested"
    assert owner.post(f"/requests/{number}/comment", text="Please").status_code == 303
    assert owner.post(f"/requests/{number}/withdraw", version="2").status_code == 303
    assert console.as_role("operator").post(f"/requests/{number}/approve", version="3").status_code == 409


def test_the_name_is_checked_while_it_is_typed(console):
    owner = console.as_role("owner")
    topics.create(console.parts.configuration.admin("cli"), ["orders"], TopicSettings())
    for name, words in (
        ("orders", "exists already"),
        ("a b", "Invalid name"),
        ("new.topic", "is free"),
        ("_dlq.x", "_dlq"),
    ):
        assert words in text_of(owner.post("/requests/check", name=name)), name
    bank = console.browser(console.account("ben", "owner", console.other_team_id))
    assert "begin with bank." in text_of(
        bank.post("/requests/check", **{**WISH, "name": "x", "team": str(console.other_team_id)})
    )
    answer = bank.post("/requests", **{**WISH, "team": str(console.team_id)})
    assert answer.status_code == 422 and "Choose one of your teams" in text_of(answer)


def test_two_open_requests_cannot_ask_for_one_name(console):
    owner = console.as_role("owner")
    owner.ask()
    answer = owner.post("/requests", **{**WISH, "team": str(console.team_id)})
    assert answer.status_code == 422 and "asks for this name already" in text_of(answer)


@pytest.mark.parametrize("field", ["peak_messages", "day_messages", "body_bytes", "body_bytes_max", "retention_hours"])
@pytest.mark.parametrize("value", ["", "0", "-1", "1e3", "٣", "9" * 5_000, "1.5", "x"])
def test_a_number_that_is_none_names_its_field_and_rule(field, value):
    with pytest.raises(InvalidForm) as caught:
        parse_wish({**WISH, field: value})
    assert "Use a whole number from" in caught.value.faults[field]


def test_all_faults_of_a_form_come_at_once():
    with pytest.raises(InvalidForm) as caught:
        parse_wish({})
    assert len(caught.value.faults) == 15


def test_the_disk_that_a_topic_takes_follows_from_rate_size_and_retention():
    use = disk_use(parse_wish({**WISH, "day_messages": "1000", "body_bytes": "900", "retention_hours": "48"}))
    assert use == (1_000_000, 2_000_000)


@pytest.mark.parametrize(("peak", "queues"), [("1", 8), ("16000", 8), ("16001", 16), ("1000000", 256)])
def test_queues_follow_from_the_peak(peak, queues):
    assert parse_wish({**WISH, "peak_messages": peak}).queues == queues


def test_every_bound_of_the_policy_has_a_reason():
    wish = parse_wish({**WISH, "peak_messages": "100000", "day_messages": "100000000", "retention_hours": "1000"})
    assert len(OPEN_POLICY.reasons(wish, 50)) == 5 and OPEN_POLICY.reasons(parse_wish(WISH), 49) == []


def test_a_request_is_in_the_audit_from_and_to(console):
    number = console.as_role("owner").ask()
    console.as_role("operator").post(f"/requests/{number}/approve", version="1")
    rows = console.parts.log.latest(f"request {number}")
    assert [row["action"] for row in rows] == [APPLIED, APPROVED, "ask for topic"]
    assert (rows[1]["old"], rows[1]["new"]) == ({"state": "requested"}, {"state": "approved"})
    assert SETUP.name != rows[0]["who"] == "operator"

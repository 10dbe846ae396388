"""Requests for changes of topics: from → to, compare-and-set on the version, the second of two editors."""

import pytest

from common.admin import topics
from common.admin.topics import TopicSettings
from common.config.errors import StoreUnavailable
from console.asking.topic_change import fields_of
from tests.unit.console.consoles import text_of


@pytest.fixture
def owner(console):
    """An owner whose team has the topic orders."""
    browser = console.as_role("owner", "olga")
    number = browser.ask()
    assert console.as_role("operator", "otto").post(f"/requests/{number}/approve", version="1").status_code == 303
    return browser


def topic_of(console):
    return topics.show(console.parts.configuration.admin("test"), "orders")


def fields(console, **changed: str) -> dict[str, str]:
    topic, version = topic_of(console)
    return {**fields_of(topic), "version": str(version), "reason": "More load", **changed}


def ask(console, browser, **changed: str) -> int:
    answer = browser.post("/topics/orders/change", **fields(console, **changed))
    assert answer.status_code == 303, text_of(answer)
    return int(answer.location.rpartition("/")[2])


def test_a_change_is_shown_from_to_approved_and_written(console, owner):
    number = ask(console, owner, retention_hours="24", grade="high")
    operator = console.as_role("operator", "olaf")
    page = text_of(operator.get(f"/requests/{number}"))
    assert "3 days" in page and "1 day" in page and "normal" in page and "high" in page and "More load" in page
    assert operator.post(f"/requests/{number}/approve", version="1").status_code == 303
    topic, version = topic_of(console)
    assert (topic.retention_ms, topic.grade, topic.queues) == (86_400_000, "high", 8)
    request = console.parts.requests.get(number)
    assert (request.state, request.written_version) == ("applied", version)
    assert console.parts.requests.owner_of("orders")[2] == "Orders that are paid", "the description stays"
    assert "console:olaf" in text_of(operator.get("/audit?of=store"))


def test_the_second_of_two_editors_sees_the_change_of_the_first_before_asking(console, owner):
    stale = fields(console, grade="high")
    change(console, queues=16)
    answer = owner.post("/topics/orders/change", **stale)
    page = text_of(answer)
    assert answer.status_code == 409 and "changed meanwhile" in page and "now 16" in page
    assert 'value="high" selected' in answer.get_data(as_text=True), "what was entered is kept"


def change(console, **settings) -> None:
    topics.set_topic(console.parts.configuration.admin("cli"), "orders", TopicSettings(**settings))


def test_of_two_requests_the_second_is_not_written_over_the_first_and_can_be_kept(console, owner):
    first, second = ask(console, owner, grade="high"), ask(console, owner, queues="32")
    operator = console.as_role("operator", "olaf")
    assert operator.post(f"/requests/{first}/approve", version="1").status_code == 303
    refused = operator.post(f"/requests/{second}/approve", version="1")
    assert refused.status_code == 409 and "was changed since" in text_of(refused)
    assert console.parts.requests.get(second).state == "requested" and topic_of(console)[0].queues == 8
    page = text_of(operator.get(f"/requests/{second}"))
    assert "The topic was changed since this was asked for" in page and "grade" in page
    assert operator.post(f"/requests/{second}/rebase", version="1").status_code == 303
    assert operator.post(f"/requests/{second}/approve", version="1").status_code == 409, "it was checked meanwhile"
    assert operator.post(f"/requests/{second}/approve", version="2").status_code == 303
    topic = topic_of(console)[0]
    assert (topic.queues, topic.grade) == (32, "high")


def test_with_the_store_away_an_approved_change_is_written_when_it_is_back_and_once(console, owner, monkeypatch):
    number = ask(console, owner, grade="high")
    operator = console.as_role("operator", "olaf")
    real = topics.set_topic

    def lose_the_answer(*arguments, **named):
        real(*arguments, **named)
        raise StoreUnavailable("the connection broke")

    monkeypatch.setattr(topics, "set_topic", lose_the_answer)
    assert operator.post(f"/requests/{number}/approve", version="1").status_code == 503
    monkeypatch.undo()
    version = topic_of(console)[1]
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == "applied" and topic_of(console)[1] == version


@pytest.mark.parametrize(
    "wrong",
    [
        {"queues": "4"}, {"queues": "0"}, {"queues": "x"}, {"queues": "9" * 30}, {"retention_hours": "-1"}, {"grade": "top"},
        {"reason": " "}, {"body_bytes_max": "0"}, {"durability": "<script>"}, {}, {"buffer": ""}, {"reason": "x" * 1001, "grade": "low"},
    ],
)  # fmt: skip
def test_a_change_that_makes_no_sense_is_refused_and_says_where(console, owner, wrong):
    answer = owner.post("/topics/orders/change", **fields(console, **wrong))
    page = answer.get_data(as_text=True)
    assert answer.status_code == 422 and ('class="fault"' in page or "banner bad" in page) and "<script>" not in page
    assert len(console.parts.requests.list(limit=10)) == 1


def test_only_the_owning_team_and_operators_ask_and_the_asker_or_an_operator_keeps(console, owner):
    eve = console.browser(console.account("eve", "owner", console.other_team_id))
    assert eve.get("/topics/orders/change").status_code == 403
    assert eve.post("/topics/orders/change", **fields(console, grade="high")).status_code == 403
    number = ask(console, owner, grade="high")
    change(console, queues=16)
    assert eve.post(f"/requests/{number}/rebase", version="1").status_code == 403
    assert owner.post(f"/requests/{number}/rebase", version="9").status_code == 409
    assert owner.post("/requests/1/rebase", version="1").status_code == 409, "it asks for a new topic"
    assert owner.get("/topics/nothing/change").status_code == 404


def test_a_topic_that_is_gone_is_a_conflict(console, owner):
    number = ask(console, owner, grade="high")
    topics.delete(console.parts.configuration.admin("cli"), "orders")
    operator = console.as_role("operator", "olaf")
    answer = operator.post(f"/requests/{number}/approve", version="1")
    assert answer.status_code == 409 and "is gone" in text_of(answer)
    assert operator.get(f"/requests/{number}").status_code == 200

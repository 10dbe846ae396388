"""BACKLOGGED at a producer proxy: on the hot path's front and on the reference alone; and how the engine is asked."""

import json

import pytest

from common.config.definitions import TopicDefinition
from common.contract import Code, Message
from engine.link import layout
from producer_proxy.admission import backlog as backlogs_module
from producer_proxy.admission.backlog import TopicBacklogs
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.admission.test_rate_limits import change
from tests.unit.producer_proxy.send.desk import codes, credential, request

BEHIND = {"group": "billing", "bound": "messages"}


class Engine:
    """Answers BACKLOG questions at once, as long as it is there."""

    def __init__(self):
        self.behind, self.questions, self.is_there = {}, [], True

    def ask(self, payload, answer):
        topics = json.loads(payload)["topics"]
        self.questions.append([topic["name"] for topic in topics])
        if not self.is_there:
            answer(layout.UNAVAILABLE, b"")
            return
        answer(0, json.dumps({"topics": [self.behind.get(topic["name"]) for topic in topics]}).encode())


@pytest.fixture
def engine(desk, monkeypatch):
    """The engine of the desk's proxy, which is asked only about backlogs."""
    made = Engine()

    def send(op, payload, answer):
        if op == layout.BACKLOG:
            made.ask(payload, lambda code, text: answer(code, text))
        else:
            answer(layout.UNAVAILABLE, b"")

    monkeypatch.setattr(desk.rpc, "send", send)
    change(desk, "topic", "orders", required_groups=["billing"], backlog_messages=100)
    return made


def test_a_backlogged_topic_is_refused_and_its_neighbours_in_the_call_are_stored(desk, engine):
    client, fixed = desk.client(), credential()
    both = [Message(topic="orders", body=b"x", id="mine"), Message(topic="orders.fast", body=b"x")]
    assert codes(client.call(request(*both, credential=fixed))) == [Code.OK, Code.OK]
    engine.behind["orders"] = BEHIND
    wait_until(lambda: desk.proxy.admission.backlogs.open == 1)
    for _ in range(2):
        results = client.call(request(*both, credential=fixed))
        assert codes(results) == [Code.BACKLOGGED, Code.OK]
        assert (
            results[0].error
            == "topic=orders: group billing is too far behind, the bound is 100 messages; nothing was stored"
        )
        assert (results[0].id, results[0].retry_after_ms, results[0].offset) == ("mine", 1000, None)
    engine.behind.clear()
    wait_until(lambda: desk.proxy.admission.backlogs.open == 0)
    hot = desk.proxy.front.hot_calls if desk.proxy.front is not None else 0
    assert codes(client.call(request(*both[:1], credential=fixed))) == [Code.OK]
    if desk.proxy.front is not None:
        assert desk.proxy.front.hot_calls == hot + 1, "a topic that has caught up is back on the hot path"


def test_without_an_answer_the_last_word_counts(desk, engine):
    client, fixed, message = desk.client(), credential(), Message(topic="orders", body=b"x")
    client.call(request(message, credential=fixed))
    engine.behind["orders"] = BEHIND
    wait_until(lambda: desk.proxy.admission.backlogs.open == 1)
    engine.is_there, asked = False, len(engine.questions)
    wait_until(lambda: len(engine.questions) > asked + 1)
    assert codes(client.call(request(message, credential=fixed))) == [Code.BACKLOGGED]


def test_a_breaker_that_is_taken_away_lets_the_next_message_through(desk, engine):
    client, fixed, message = desk.client(), credential(), Message(topic="orders", body=b"x")
    client.call(request(message, credential=fixed))
    engine.behind["orders"] = BEHIND
    wait_until(lambda: desk.proxy.admission.backlogs.open == 1)
    del engine.behind["orders"]  # but before it says so
    engine.is_there = False
    change(desk, "topic", "orders", backlog_messages=0)
    wait_until(lambda: codes(client.call(request(message, credential=fixed))) == [Code.OK])
    asked = len(engine.questions)
    desk.proxy.admission.tick()
    assert len(engine.questions) == asked, "nobody is asked for nothing"


def test_what_withdraws_a_message_is_not_refused_as_backlogged(desk, engine, monkeypatch):
    client, fixed = desk.client(), credential()
    client.call(request(Message(topic="orders", body=b"x"), credential=fixed))
    engine.behind["orders"] = BEHIND
    wait_until(lambda: desk.proxy.admission.backlogs.open == 1)
    monkeypatch.setattr(desk.rpc, "call", lambda op, payload, timeout: (layout.NOT_CANCELLABLE, b""))
    withdrawal = Message(topic="orders", id="a", operation=1)
    assert codes(client.call(request(withdrawal, credential=fixed))) == [Code.NOT_CANCELLABLE]


def watching(engine, count, used=lambda name: True):
    backlogs = TopicBacklogs(engine.ask, used, lambda name: None)
    for number in range(count):
        backlogs.fit(TopicDefinition(f"t{number}", required_groups=("g",), backlog_messages=1))
    return backlogs


def test_many_topics_are_asked_about_in_turn(monkeypatch):
    monkeypatch.setattr(backlogs_module, "TOPICS_PER_TICK", 3)
    engine = Engine()
    backlogs = watching(engine, 5)
    for _ in range(3):
        backlogs.tick()
    assert engine.questions == [["t0", "t1", "t2"], ["t3", "t4", "t0"], ["t1", "t2", "t3"]]


def test_a_topic_that_is_no_longer_in_use_is_not_asked_about():
    engine, used = Engine(), {"t0", "t1"}
    backlogs = watching(engine, 2, lambda name: name in used)
    backlogs.tick()
    used.remove("t0")
    backlogs.tick()
    assert engine.questions == [["t0", "t1"], ["t1"]]


def test_topics_without_a_breaker_are_not_asked_about():
    engine = Engine()
    backlogs = TopicBacklogs(engine.ask, lambda name: True, lambda name: None)
    backlogs.fit(TopicDefinition("plain"))
    backlogs.fit(TopicDefinition("named", required_groups=("g",)))
    backlogs.tick()
    assert engine.questions == []

"""BACKLOG over the link: how far required groups are behind, from both forms of the server and places, on a real log."""

import json
import time

import pytest

from engine.link import layout
from engine.link.pull import encode_pull
from engine.ops import backlog
from tests.contract.link_engine import Engine, ack


@pytest.fixture(autouse=True)
def every_question_is_looked_at(monkeypatch):
    monkeypatch.setattr(backlog, "FRESH_MS", 0)


def asked(*topics, **bounds):
    bounds = {"groups": ["billing"], "messages": 0, "bytes": 0, "age_ms": 0} | bounds
    return json.dumps({"topics": [{"name": name, **bounds} for name in topics]}).encode()


def reasons(engine, *topics, **bounds):
    code, payload = engine.ask(layout.BACKLOG, asked(*topics, **bounds))
    assert code == 0, payload
    return json.loads(payload)["topics"]


def acknowledge(engine, count, group="billing"):
    _, pieces = engine.pull(group, max_messages=count)
    assert sum(piece.count for piece in pieces) == count
    engine.pull(group, max_messages=0, acks=[ack(piece) for piece in pieces])


BEHIND = {"group": "billing", "bound": "messages"}


def test_a_group_is_behind_by_what_it_has_not_acknowledged_and_the_breaker_has_hysteresis(engine):
    engine.store(engine.topic(), 100)
    assert reasons(engine, "orders", messages=101) == [None]
    assert reasons(engine, "orders", messages=100) == [BEHIND]
    acknowledge(engine, 30)
    assert reasons(engine, "orders", messages=100) == [BEHIND], "70 are 70 % of the bound"
    _, held = engine.pull("billing", max_messages=30)
    assert reasons(engine, "orders", messages=100) == [BEHIND], "what is only leased is not done"
    engine.pull("billing", max_messages=0, acks=[ack(piece) for piece in held])
    assert reasons(engine, "orders", messages=100) == [None]
    engine.store(engine.topic(), 59)
    assert reasons(engine, "orders", messages=100) == [None], "99"
    engine.store(engine.topic(), 1)
    assert reasons(engine, "orders", messages=100) == [BEHIND]


def test_the_queues_of_a_topic_count_together_and_only_the_groups_that_are_required(engine):
    topic = engine.topic()
    engine.store(topic, 6, queue=0)
    engine.store(topic, 4, queue=1)
    engine.pull("audit", max_messages=1)
    assert reasons(engine, "orders", messages=10, groups=["audit"]) == [{"group": "audit", "bound": "messages"}]
    acknowledge(engine, 10)
    assert reasons(engine, "orders", messages=10) == [None]
    assert reasons(engine, "orders", messages=10, groups=["billing", "audit"])[0]["group"] == "audit"


def test_the_slowest_group_decides_and_one_that_never_pulled_is_behind_by_everything(engine):
    engine.store(engine.topic(), 10)
    acknowledge(engine, 10)
    assert reasons(engine, "orders", messages=10, groups=["billing", "never"])[0]["group"] == "never"
    assert engine.admin("groups")["groups"] == ["billing"], "asking makes no group"


def test_the_backlog_of_a_group_is_told_per_queue_with_what_is_only_leased(engine):
    def lags(topic, group):
        asked = {"topics": [], "lags": {"topic": topic, "group": group}}
        code, payload = engine.ask(layout.BACKLOG, json.dumps(asked).encode())
        assert code == 0, payload
        return json.loads(payload)["lags"]

    topic = engine.topic()
    engine.store(topic, 6, queue=0)
    engine.store(topic, 4, queue=1)
    assert lags("nowhere", "billing") == []
    assert [messages for messages, _ in lags("orders", "billing")][:2] == [6, 4]
    acknowledge(engine, 10)
    engine.store(topic, 2, queue=1)
    _, held = engine.pull("billing", max_messages=10)
    (first, second, *_) = lags("orders", "billing")
    assert first == [0, 0] and second[0] == 2 and second[1] > 0
    engine.pull("billing", max_messages=0, acks=[ack(piece) for piece in held])
    assert [messages for messages, _ in lags("orders", "billing")][:2] == [0, 0]


def test_bytes_count_by_the_size_of_records(engine):
    engine.store(engine.topic(), 100)
    one = engine.pull("other", max_messages=1)[1][0]
    size = len(one.records)
    assert reasons(engine, "orders", bytes=100 * size + 1) == [None]
    assert reasons(engine, "orders", bytes=100 * size) == [{"group": "billing", "bound": "bytes"}]


def test_the_age_is_that_of_the_oldest_message_that_is_not_acknowledged(engine):
    topic = engine.topic()
    engine.store(topic, 1, queue=0)
    time.sleep(0.3)
    engine.store(topic, 1, queue=1)
    assert reasons(engine, "orders", age_ms=60_000) == [None]
    assert reasons(engine, "orders", age_ms=290) == [{"group": "billing", "bound": "age"}]
    acknowledge(engine, 2)
    assert reasons(engine, "orders", age_ms=290) == [None]


def test_a_topic_that_the_engine_does_not_have_is_not_behind(engine):
    assert reasons(engine, "nothing", messages=1) == [None]


def test_asking_moves_nobody(engine):
    engine.store(engine.topic(), 20)
    acknowledge(engine, 5)
    before = engine.admin("lag", group="billing")
    for _ in range(3):
        reasons(engine, "orders", messages=1, age_ms=1, bytes=1)
    assert engine.admin("lag", group="billing") == before


def test_after_a_restart_the_kept_progress_counts_before_the_group_has_pulled_again(tmp_path):
    first = Engine(tmp_path / "engine", "twin")
    first.store(first.topic(), 100)
    acknowledge(first, 60)
    first.close()
    again = Engine(tmp_path / "engine", "twin")
    try:
        assert reasons(again, "orders", messages=41) == [None]
        assert reasons(again, "orders", messages=40) == [BEHIND]
    finally:
        again.close()


def test_a_verdict_is_found_anew_when_it_is_old_or_the_bounds_are_others(engine, monkeypatch):
    monkeypatch.setattr(backlog, "FRESH_MS", 60_000)
    topic = engine.topic()
    engine.store(topic, 5)
    assert reasons(engine, "orders", messages=6) == [None]
    engine.store(topic, 5)
    assert reasons(engine, "orders", messages=6) == [None], "as fresh as that"
    assert reasons(engine, "orders", messages=7) == [BEHIND]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"[]", b'{"topics": [{}]}', asked("a/b"), asked("orders", groups=[""]), asked("orders", groups="billing"),
        asked("orders", groups=["g"] * 17), asked("orders", messages=-1), asked("orders", messages=True), asked("orders", age_ms=1.5),
        asked(*["orders"] * 1001), b'{"topics": [], "lags": []}', b'{"topics": [], "lags": {"topic": "orders"}}',
        b'{"topics": [], "lags": {"topic": "a/b", "group": "g"}}', b'{"topics": [], "lags": {"topic": "a", "group": 1}}',
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_invalid(engine, payload):
    code, sentence = engine.ask(layout.BACKLOG, payload)
    assert code == layout.INVALID
    assert sentence
    assert engine.ask(layout.PULL, encode_pull("g", [("orders", 1)]))[0] == 0, "the link goes on"

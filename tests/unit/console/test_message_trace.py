"""The state of a message in a group, from what the engine answers."""

from contextlib import contextmanager

import pytest

from console.installation.broker_queries import Answers, BrokerLinks
from console.installation.message_copies import LONE, copies
from console.installation.message_trace import passage, trace
from engine.client.admin import AdminError


class OneEngine:
    """Stands for the engines: group `readers` has settled up to offset 5, and offset 2 of queue 0 is its dead letter."""

    def __init__(self, in_flight: int = 0, knows_dead_letters: bool = True) -> None:
        self._in_flight, self._knows = in_flight, knows_dead_letters

    def open(self):
        return self

    def __enter__(self):
        return BrokerLinks({"main": self}, [])

    def __exit__(self, *_):
        return None

    def groups(self, opened, limit):
        return ["readers", "strangers"][:limit]

    def query(self, group):
        rows = [{"queue": 0, "progress": 5, "in_flight": self._in_flight}] if group == "readers" else []
        return Answers(rows, [])

    def ask(self, *arguments, **options):
        if len(arguments) > 1:
            return self.query(options["group"])
        if not self._knows:
            raise AdminError(103, "unknown group")
        letter = {"offset": 0, "queue": 0, "message_offset": 2, "cause": "rejected", "attempts": 3, "died_ms": 9}
        return {"letters": [letter], "count": 1, "next": 1, "end": 1}


@pytest.mark.parametrize(
    ("offset", "in_flight", "state"),
    [(2, 0, "dead-lettered"), (4, 0, "settled"), (5, 0, "waiting"), (7, 2, "open")],
)
def test_a_message_has_one_state_per_group_that_reads_its_queue(offset, in_flight, state):
    found = trace(OneEngine(in_flight), "orders", 0, offset, 1)
    assert [(each.group, each.state) for each in found.groups] == [("readers", state)]
    assert found.groups[0].dead.get("broker_group") == ("main" if state == "dead-lettered" else None)


@pytest.mark.parametrize(
    ("told", "state", "words"),
    [
        ({"state": "leased", "attempts": 2, "left_ms": 4_500}, "in flight", "in attempt 2 for 4,500 ms more"),
        (
            {"state": "waiting", "attempts": 1, "left_ms": 30_000},
            "waiting",
            "next attempt for 30 s more; 1 attempt so far",
        ),
        ({"state": "due", "attempts": 3}, "due", "The next pull gets it; 3 attempts so far"),
        ({"state": "held", "attempts": 0}, "held", "an earlier message of its key; not delivered before"),
        ({"state": "undelivered"}, "undelivered", "2 messages of the queue are before it"),
        ({"state": "settled"}, "settled", "Acknowledged, or passed over"),
    ],
)
def test_what_the_engine_knows_of_a_delivery_is_said(told, state, words):
    engine = OneEngine(1)
    engine.query = lambda group: Answers(
        [{"queue": 0, "progress": 5, "in_flight": 1, "message": told}] if group == "readers" else [], []
    )
    (found,) = trace(engine, "orders", 0, 7, 1).groups
    assert found.state == state and words in found.sentence


def test_a_group_without_dead_letters_still_has_a_state():
    assert [each.state for each in trace(OneEngine(knows_dead_letters=False), "orders", 0, 2, 1).groups] == ["settled"]


def test_a_queue_that_no_group_has_read_has_no_rows():
    assert trace(OneEngine(), "orders", 1, 0, 1).groups == []


@pytest.mark.parametrize(
    ("accepted_ms", "stored_ms", "is_delayed", "words"),
    [
        (None, 9_000, False, ""),
        (1_000, 1_004, False, "Stored 4 ms later: within the time of a call"),
        (1_000, 61_001, False, "Waited 60 s, longer than a call may last: it was in a fallback buffer"),
        (1_000, 3_601_000, True, "Delayed by its sender"),
        (9_000, 1_000, False, "clocks of two machines"),
        (1_500, 1_000, False, "Stored 0 ms later"),
    ],
)
def test_the_time_between_acceptance_and_storage_tells_of_a_fallback_buffer(accepted_ms, stored_ms, is_delayed, words):
    found = passage(accepted_ms, stored_ms, is_delayed)
    assert words in found if words else found == ""


class Replicas:
    """Stands for the engines: one group, whose master tells `confirmed` or raises."""

    def __init__(self, told, brokers: int = 2) -> None:
        self._told, self._brokers = told, brokers

    def home(self, topic, queue):
        return "main"

    def places(self):
        return {"main": (("127.0.0.1", 1),) * self._brokers}

    @contextmanager
    def open(self):
        yield BrokerLinks({"main": self}, [])

    def ask(self, verb, stored_ms):
        if isinstance(self._told, Exception):
            raise self._told
        return {"confirmed": self._told}


BOTH = {"in_sync": ["b1", "b2"]}


@pytest.mark.parametrize(
    ("told", "by_ms", "words"),
    [
        ({"after_ms": 1_000, "by_ms": 1_130, **BOTH}, 1_130, "b1 and b2 had it at most 130 ms after it was stored"),
        ({"after_ms": 1_900, "by_ms": 2_000, **BOTH}, 2_000, "b1 and b2 had it 900 ms to 1,000 ms after"),
        ({"by_ms": 9_000, **BOTH}, 9_000, "the present master has led since later"),
        ({"after_ms": 1_000, "by_ms": 1_100, "in_sync": ["b1"]}, 1_100, "b1 alone was in sync"),
        ({"after_ms": 1_000}, None, "load the page again"),
        (AdminError(100, "verb 'confirmed'"), None, "when is not known: "),
    ],
)
def test_when_the_brokers_in_sync_had_a_message_is_said_as_far_as_it_is_known(told, by_ms, words):
    found = copies(Replicas(told), "orders", 0, 1_000)
    assert found.by_ms == by_ms and words in found.sentence


def test_a_lone_broker_has_no_copies():
    assert copies(Replicas({}, brokers=1), "orders", 0, 1_000) == (LONE, None)

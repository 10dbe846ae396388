"""Queries to several broker groups, and how their answers are joined."""

import json

from engine.client.append import Destination, Destinations
from engine.client.router import Router
from engine.link import layout
from producer_proxy.admission.engine_queries import EngineQueries

QUESTION = {"name": "orders", "groups": ["g"], "messages": 100, "bytes": 0, "age_ms": 500}
REASON = {"group": "g", "bound": "messages"}


class Broker:
    """A broker group that answers when the test says so."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number, self.address, self.breaker = name, number, ("127.0.0.1", 1), self
        self.share, self.asked, self.is_down = 16, [], False

    def ask(self, op, payload, answer) -> None:
        if self.is_down:
            answer(layout.UNAVAILABLE, b"")
        else:
            self.asked.append((op, payload, answer))

    def answer(self, *reasons) -> None:
        _, _, answer = self.asked.pop()
        answer(0, json.dumps({"topics": list(reasons)}).encode())

    @property
    def question(self) -> list[dict]:
        return json.loads(self.asked[-1][1])["topics"]


class Brokers:
    def __init__(self) -> None:
        self.only = None
        self.router: Router = Router(lambda name, number, address: Broker(name, number))
        self.router.follow([(name, ("127.0.0.1", 1)) for name in ("east", "north", "west")])
        east, north, west = self.router.groups
        self.listed = [west, east, north]


def desk():
    brokers, known, said = Brokers(), Destinations(10), []
    known.put(Destination(b"orders", 0, 4, 1, 1000, 0, bytes([2, 2, 2, 0]), bytes(12)))
    return brokers, EngineQueries(brokers, known), said, lambda code, payload: said.append((code, payload))


def ask(asking, answer) -> None:
    asking.backlogs(json.dumps({"topics": [QUESTION]}).encode(), answer)


def reasons(said):
    ((code, payload),) = said
    assert code == 0
    return json.loads(payload)["topics"]


def test_each_group_is_asked_with_its_share_of_the_bounds_and_the_first_reason_counts():
    brokers, asking, said, answer = desk()
    ask(asking, answer)
    west, east, north = brokers.listed
    assert (west.question[0]["messages"], east.question[0]["messages"], north.asked) == (75, 25, [])
    assert west.question[0]["age_ms"] == 500
    west.answer(None)
    assert said == []
    east.answer(REASON)
    assert reasons(said) == [REASON]


def test_queues_that_take_no_more_messages_have_no_part_in_the_share_of_those_that_do():
    """East had all queues, then west and north got them: the bound is theirs, and east's for what still waits there."""
    brokers, known, said = Brokers(), Destinations(10), []
    known.put(Destination(b"orders", 0, 8, 1, 1000, 0, bytes([0, 0, 0, 0, 2, 2, 2, 1]), bytes(12), 4))
    ask(EngineQueries(brokers, known), lambda code, payload: said.append((code, payload)))
    west, east, north = brokers.listed
    assert [each.question[0]["messages"] for each in (west, east, north)] == [75, 100, 25]


def test_a_group_that_is_isolated_or_down_is_left_out():
    brokers, asking, said, answer = desk()
    brokers.listed[0].share = 0
    ask(asking, answer)
    brokers.listed[1].answer(None)
    assert reasons(said) == [None]
    brokers.listed[1].is_down = True
    said.clear()
    ask(asking, answer)
    assert said[0][0] == layout.UNAVAILABLE, "nobody has said anything: the last word counts"


def test_the_lender_is_the_first_group_by_name_for_every_proxy():
    brokers, asking, said, answer = desk()
    asking.lend(b"{}", answer)
    assert [bool(broker.asked) for broker in brokers.listed] == [False, True, False]
    brokers.router.follow([])
    asking.lend(b"{}", answer)
    assert said == [(layout.UNAVAILABLE, b"")]


def test_with_all_groups_isolated_the_answer_is_unavailable():
    brokers, asking, said, answer = desk()
    for broker in brokers.listed:
        broker.share = 0
    ask(asking, answer)
    assert [code for code, _ in said] == [layout.UNAVAILABLE]

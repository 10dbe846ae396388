"""Delayed messages and dead letters: how they are counted at engines, and where a plan refuses to leave them behind."""

import json

import pytest

from common.contract import Code
from common.dead_letters import dead_letter_topic
from engine.client.admin import AdminError
from engine.link.codes import OK, UNKNOWN_TOPIC
from migration.errors import PlanRefused
from migration.leftovers import LeftDeadLetters, LeftDelayedMessages, dead_letters, delayed_messages
from migration.recipes.course import PlanStep
from tests.unit.migration.test_courses import World, go

LONG = "g" * 249


class Engine:
    """Answers the three requests from lists, page by page."""

    def __init__(self, delayed=None, dead=None, page=2) -> None:
        self.delayed, self.dead, self.page = delayed or {}, dead or {}, page

    def call(self, op, payload):
        asked = json.loads(payload)
        if asked["topic"] not in self.delayed:
            return UNKNOWN_TOPIC, b"the engine has no such topic"
        rows = self.delayed[asked["topic"]]
        start = asked["start"]
        after = start + self.page
        page = [{"due_ms": each} for each in rows[start:after]]
        return OK, json.dumps({"timers": page, "next": after if after < len(rows) else -1}).encode()

    def ask(self, verb, **options):
        if verb == "topics":
            names = sorted(map(dead_letter_topic, self.dead))
            return {"topics": [{"name": each} for each in names if each > options["after"]]}
        if options["group"] not in self.dead:
            raise AdminError(Code.UNKNOWN_GROUP, "unknown group")
        letters, after = self.dead[options["group"]], options["after"]
        page = letters[after : after + self.page]
        return {"count": page.count(options["topic"]), "next": after + len(page), "end": len(letters)}


def test_delayed_messages_are_counted_over_pages_and_engines_that_know_the_topic():
    engines = [Engine({"orders": [5, 9, 7]}), Engine(), Engine({"orders": [8]})]
    assert delayed_messages(engines, "orders") == LeftDelayedMessages(4, 9)
    assert delayed_messages(engines, "pay") == LeftDelayedMessages(0, 0)


def test_dead_letters_are_counted_by_topic_and_group_also_of_groups_with_the_longest_names():
    engines = [
        Engine(dead={"billing": ["orders", "pay", "orders"], LONG: ["pay"]}),
        Engine(dead={"billing": ["orders"]}),
    ]
    found = dead_letters(engines, ["orders", "pay"], [LONG])
    assert found == {
        "orders": (LeftDeadLetters("billing", "orders", 3),),
        "pay": (LeftDeadLetters("billing", "pay", 1), LeftDeadLetters(LONG, "pay", 1)),
    }
    assert dead_letters(engines, ["other"], [LONG]) == {}


@pytest.fixture
def moved():
    """A world whose topics were cut."""
    made = World(seed=3)
    made.add_plan()
    go(made, "start", "verify", "cut", "soak")
    return made


def test_a_rollback_is_refused_while_delayed_messages_wait_with_numbers_and_what_to_do(moved):
    moved.delayed = {"orders": LeftDelayedMessages(12, 1_700_000_000_000)}
    with pytest.raises(PlanRefused) as refused:
        go(moved, "rollback")
    told = str(refused.value)
    assert "12 delayed messages of orders wait, the last one until 2023-11-14T22:13:20Z" in told
    assert "penstock timer list --topic orders" in told and "--accept delayed" in told
    assert moved.state.step is PlanStep.SOAKING and moved.home("orders") == "engine"
    moved.run(["delayed"]).run("rollback")
    assert moved.home("orders") == "kafka:main"


def test_delayed_messages_that_are_sent_until_the_fence_are_seen_behind_it_and_the_fence_is_lifted(moved):
    turn = moved.turn

    def turn_and_delay(seconds=0.1):
        turn(seconds)
        if any(each.fence is not None for each in moved.definitions().values()):
            moved.delayed = {"pay": LeftDelayedMessages(1, 1_700_000_000_000)}

    moved.turn = turn_and_delay
    with pytest.raises(PlanRefused, match="1 delayed messages of pay"):
        go(moved, "rollback")
    assert all(each.fence is None and each.home == "engine" for each in moved.definitions().values())


def test_a_rollback_is_refused_while_a_group_has_dead_letters_of_the_topics(moved):
    moved.dead = {"orders": (LeftDeadLetters("billing", "orders", 3),)}
    with pytest.raises(PlanRefused) as refused:
        go(moved, "rollback")
    assert "group billing has 3 dead letters of orders" in str(refused.value)
    assert "penstock group dead-letters redrive billing --topic orders" in str(refused.value)
    moved.run(["dead-letters"]).run("rollback")
    assert moved.home("orders") == "kafka:main"

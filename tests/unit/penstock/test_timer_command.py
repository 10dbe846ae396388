"""`penstock timer`: pages of several engines, of which some do not know the topic."""

import json

import pytest

from common.contract import Code
from engine.link import layout
from penstock.commands.timer import known_pages
from penstock.terminal.exits import NOT_FOUND, CommandError


class Engine:
    """Answers TIMER_LIST with these ids; None: it does not know the topic."""

    def __init__(self, ids: list[str] | None, code: int = Code.UNKNOWN_TOPIC) -> None:
        self.ids, self.code = ids, code

    def call(self, op, payload):
        assert op == layout.TIMER_LIST
        if self.ids is None:
            return int(self.code), b"topic 'orders': the engine has no such topic"
        return layout.OK, json.dumps({"timers": [{"id": each} for each in self.ids], "next": -1}).encode()


def listed(**engines: list[str] | None) -> list[str]:
    found = known_pages({name: Engine(ids) for name, ids in engines.items()}, "orders", 100)
    return [row["id"] for rows, is_end in found for row in rows if is_end]


@pytest.mark.parametrize("engines", [{"a": ["1"], "b": None}, {"a": None, "b": ["1"]}, {"a": [], "b": ["1"]}])
def test_engines_that_do_not_know_the_topic_are_left_out(engines):
    assert listed(**engines) == ["1"]


def test_a_topic_that_no_engine_knows_is_not_found():
    with pytest.raises(CommandError) as refused:
        listed(a=None, b=None)
    assert refused.value.exit_code == NOT_FOUND


def test_any_other_error_of_an_engine_ends_the_command():
    with pytest.raises(CommandError, match="engine of b"):
        known_pages({"a": Engine(["1"]), "b": Engine(None, Code.UNAVAILABLE)}, "orders", 100)

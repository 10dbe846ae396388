"""From when on a primary's answer that it lacks a message is final."""

import pytest

from common.contract import Code
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.journal import absence
from producer_proxy.journal.absence import ABSENT_SHARE, Absence
from producer_proxy.journal.backlog import WaitingRepair
from producer_proxy.journal.taken import TakenEntry
from tests.unit.producer_proxy.journal.side import Side

SETTLED_S = 35
WAIT_S = SETTLED_S / ABSENT_SHARE
AWAY = Code.UNAVAILABLE


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def monotonic(self) -> float:
        return self.s

    def now_ms(self) -> int:
        return int(self.s * 1000)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(absence, "time", made)
    return made


@pytest.fixture
def asked(clock):
    side = Side("kafka:main")
    side.settled_after_s = SETTLED_S
    answers = Absence(side, clock.now_ms)

    def ask(at_s, *codes_by_entry):
        """The primary answers about entries at a time; whether the last one has certainly not been stored."""
        clock.s = at_s
        answers.note([(each, (int(code), None, None)) for each, code in codes_by_entry])
        return answers.is_final(codes_by_entry[-1][0]) if codes_by_entry[-1][1] == Code.OK else False

    return ask


def entry(accepted_at_s, topic="t"):
    return TakenEntry(topic, WaitingRepair(0, None, True), BufferEntry(topic, None, None, b"", accepted_at_s * 1000))


def test_the_first_answer_says_nothing_since_the_primary_may_just_have_come_back(asked):
    assert not asked(100, (entry(0), Code.OK))
    assert not asked(100 + WAIT_S - 0.1, (entry(0), Code.OK))
    assert asked(100 + WAIT_S, (entry(0), Code.OK))


def test_answers_about_other_entries_of_the_topic_count_if_they_are_younger_than_the_entry(asked):
    assert not asked(100, (entry(0), Code.OK))
    assert asked(100 + WAIT_S, (entry(60), Code.OK))
    assert not asked(100 + WAIT_S, (entry(60, "u"), Code.OK))
    assert not asked(200, (entry(150), Code.OK)), "the answers are older than the entry"
    assert asked(200 + WAIT_S, (entry(150), Code.OK))


def test_an_entry_that_has_not_settled_may_still_be_stored(asked):
    assert not asked(100, (entry(90), Code.OK))
    assert not asked(90 + SETTLED_S, (entry(90), Code.OK))
    assert asked(90 + SETTLED_S + 1, (entry(90), Code.OK))


def test_a_primary_that_tells_nothing_has_to_answer_for_the_whole_time_again(asked):
    asked(100, (entry(0), Code.OK))
    asked(103, (entry(0), AWAY))
    assert not asked(100 + WAIT_S, (entry(0), Code.OK))
    assert asked(100 + 2 * WAIT_S, (entry(0), Code.OK))


def test_an_id_that_is_found_or_that_the_primary_cannot_tell_holds_up_no_other(asked):
    asked(100, (entry(0), Code.OK))
    asked(102, (entry(0), Code.DUPLICATE))
    asked(104, (entry(0), AWAY), (entry(0), Code.OK))
    assert asked(100 + WAIT_S, (entry(0), Code.OK))

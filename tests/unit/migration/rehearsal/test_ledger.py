"""The verdict of a rehearsal: each kind of fault is found, and what has an explanation is none."""

import pytest

from common.contract import Code
from migration.rehearsal.ledger import NO_ANSWER, LoadId, LoadLedger, load_id

IDS = [LoadId("t.1", "p0.1", number) for number in range(1, 6)]
NAMES = [str(each) for each in IDS]


@pytest.fixture
def ledger():
    made = LoadLedger()
    for each in IDS:
        made.answer(each, Code.OK, 1.0)
    return made


def test_an_id_names_topic_key_and_number_and_other_ids_are_none():
    assert load_id(NAMES[0]) == IDS[0]
    assert load_id("0198f2c4a1b2c3d4e5f6a7b8c9d0e1f2") is None and load_id("a/b") is None and load_id("a/b/c") is None


def test_what_is_there_once_and_in_order_is_clean_however_the_queues_divide_it(ledger):
    verdict = ledger.judged({0: NAMES[:2], 1: NAMES[2:]})
    assert verdict.is_clean and (verdict.answered, verdict.again) == (5, 0)


def test_a_message_that_was_answered_ok_and_is_not_there_is_lost(ledger):
    verdict = ledger.judged({0: NAMES[1:]})
    assert not verdict.is_clean and verdict.lost == 1 and verdict.examples == {"lost": [NAMES[0]]}


def test_a_message_without_an_answer_is_not_lost_and_its_second_copy_is_no_double(ledger):
    unknown = LoadId("t.1", "p0.1", 6)
    ledger.answer(unknown, NO_ANSWER, 2.0)
    assert ledger.judged({0: NAMES}).is_clean
    ledger.answer(unknown, Code.OK, 3.0)
    verdict = ledger.judged({0: [*NAMES, str(unknown), str(unknown)]})
    assert verdict.is_clean and verdict.again == 1


def test_a_second_copy_without_a_reason_is_doubled_unless_kills_explain_as_many(ledger):
    rows = {0: [*NAMES, NAMES[1]]}
    assert (ledger.judged(rows).doubled, ledger.judged(rows).is_clean) == (1, False)
    assert (ledger.judged(rows, again_max=1).doubled, ledger.judged(rows, again_max=1).again) == (0, 1)


def test_a_later_message_of_a_key_that_comes_first_is_out_of_order_and_a_repetition_is_not(ledger):
    assert ledger.judged({0: [NAMES[1], NAMES[0], *NAMES[2:]]}).unordered == 1
    assert ledger.judged({0: [*NAMES, NAMES[0]]}, again_max=1).unordered == 0
    assert ledger.judged({0: [NAMES[1], NAMES[0], *NAMES[2:]]}, has_order=False).is_clean


def test_callers_see_the_time_from_the_first_refusal_of_a_topic_to_its_next_ok():
    ledger = LoadLedger()
    for code, now_s in ((Code.OK, 1.0), (Code.FENCED, 2.0), (Code.FENCED, 2.5), (Code.OK, 3.5), (Code.TIMEOUT, 4.0)):
        ledger.answer(IDS[0], code, now_s)
    assert ledger.taken_view(4.5) == ({"OK": 2, "FENCED": 2, "TIMEOUT": 1}, 1.5, 1.5)
    assert ledger.taken_view(5.0) == ({}, 0.0, 1.0), "it has not ended yet"
    ledger.answer(IDS[0], Code.OK, 6.0)
    assert ledger.taken_view(7.0) == ({"OK": 1}, 0.0, 2.0)

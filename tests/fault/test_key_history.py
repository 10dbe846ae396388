"""The checker of orders itself: a good history passes, and each mutant of it is reported under its own name."""

from dataclasses import replace

import pytest

from tests.fault.key_history import Given, History, Verdict, check

A, B, C, D = (0, 0), (0, 1), (0, 2), (1, 0)


def given(place, at_s, attempt=1, pull=None):
    return Given(place, attempt, at_s - 0.1, at_s, pull or f"p{at_s}")


def said(place, at_s, verdict="DONE", code=0):
    return Verdict(place, verdict, at_s, at_s + 0.1 if code is not None else at_s, code)


@pytest.fixture
def history():
    """One key in a queue, another in the other; the second message of the first one fails once, the third is rejected."""
    return History(
        {"k": [A, B, C], "other": [D]},
        [given(A, 1), given(D, 1), given(B, 2), given(B, 3, attempt=2), given(C, 4)],
        [said(A, 1.5), said(D, 1.5), said(B, 2.5, "RETRY"), said(B, 3.5), said(C, 4.5, "REJECT")],
        dead={C: 4.6},
        rejected_dead={C},
    )


def test_a_history_in_which_all_is_well_passes(history):
    assert check(history, stops_after=1, parks=True) == {}


@pytest.mark.parametrize("code", [106, 105])
def test_a_refused_acknowledgement_does_not_make_way_for_the_next_of_its_key(history, code):
    history.verdicts[0] = history.verdicts[0]._replace(code=code)
    assert (A, B) in check(history)["overtaken"]


def test_an_acknowledgement_that_was_never_answered_may_have_counted(history):
    history.verdicts[0] = said(A, 1.5, code=None)
    assert check(history) == {}


def test_a_retry_does_not_make_way(history):
    history.given.append(given(C, 2.8))
    assert check(history)["overtaken"] == [(B, C)]


def test_a_message_that_nobody_was_given_is_in_the_way_too(history):
    history.sequences["k"].insert(1, (0, 9))
    assert check(history)["overtaken"][0] == ((0, 9), B)


def test_one_that_came_again_after_a_crash_is_in_the_way_again(history):
    history.crashes_s = [1.65]
    history.given.append(given(A, 1.8, attempt=2))
    assert check(history) == {"overtaken": [(A, B), (A, B), (A, C)]}
    history.verdicts.append(said(A, 1.85))
    assert check(history) == {}


def test_a_dead_letter_makes_way_from_the_moment_on_at_which_it_was_stored(history):
    history.verdicts = [each for each in history.verdicts if each.place != A]
    history.dead[A] = 1.6
    assert check(history) == {}
    history.dead[A] = 2.2
    assert check(history) == {"overtaken": [(A, B)]}


def test_a_message_that_comes_again_although_it_was_done_is_reported_unless_a_crash_forgot_it(history):
    again = given(A, 3.0, attempt=2)
    history.given.append(again)
    history.verdicts.append(said(A, 3.1))
    assert check(history)["repeated"] == [again]
    history.crashes_s = [1.8]
    assert "repeated" not in check(history)
    history.crashes_s = [2.6]
    assert check(history)["repeated"] == [again], "it was done longer before the crash than progress may be old"


def test_messages_of_a_queue_may_come_together_in_one_answer_only(history):
    both = [given(A, 1, pull="p"), given(B, 1, pull="p")]
    whole = replace(history, given=both, verdicts=[said(A, 2), said(B, 2)], sequences={0: [A, B]}, dead={})
    assert check(whole, together=True) == {}
    assert check(whole) == {"overtaken": [(A, B)]}
    whole.given[1] = given(B, 1.2)
    assert check(whole, together=True) == {"overtaken": [(A, B)]}


def test_what_is_handed_out_past_a_message_that_stops_its_queue_is_reported(history):
    assert check(history, stops_after=1) == {}
    history.sequences["third"] = [(0, 3)]
    history.given.append(given((0, 3), 3.3))
    history.verdicts.append(said((0, 3), 3.4))
    assert check(history, stops_after=1) == {"past_stop": [(B, (0, 3))]}


@pytest.mark.parametrize("instead", [[], [said(D, 1.5, code=106)], [said(D, 1.5, "RETRY")]])
def test_what_is_neither_done_nor_dead_in_the_end_is_lost(history, instead):
    history.verdicts = [each for each in history.verdicts if each.place != D] + instead
    assert check(history) == {"lost": [D]}


def test_a_parked_message_that_is_buried_although_nobody_rejected_it_is_reported(history):
    history.rejected_dead.clear()
    assert check(history) == {}
    assert check(history, parks=True) == {"dead_early": [C]}

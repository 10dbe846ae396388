"""Stalls of the own process, from the times of a timer."""

import pytest

from common.stalls import KEPT, Stalls

INTERVAL_S = 0.005


def looked_at(*times_s: float) -> Stalls:
    stalls = Stalls(INTERVAL_S, 0.0)
    for now_s in times_s:
        stalls.look(now_s)
    return stalls


def test_a_timer_that_comes_in_time_or_a_little_late_shows_no_stall():
    assert looked_at(0.005, 0.010, 0.024, 0.030).since(0.0) == 0


def test_a_late_timer_shows_how_long_the_process_stood_still():
    assert looked_at(0.005, 0.110).since(0.0) == pytest.approx(0.100)


def test_a_stall_before_the_time_asked_about_does_not_count():
    assert looked_at(0.005, 0.110, 0.115).since(0.112) == 0
    assert looked_at(0.005, 0.110, 0.115).since(0.110) == 0


def test_of_a_stall_in_the_middle_only_what_came_after_counts():
    assert looked_at(0.005, 0.110).since(0.090) == pytest.approx(0.020)


def test_several_stalls_add_up_and_only_the_latest_are_kept():
    stalls = Stalls(INTERVAL_S, 0.0)
    for number in range(1, 2 * KEPT):
        stalls.look(0.105 * number)
    assert stalls.since(0.105) == pytest.approx(0.100 * KEPT)
    assert stalls.since(0.105 * (2 * KEPT - 3)) == pytest.approx(0.200)


def test_a_pause_in_which_nothing_looked_is_no_stall():
    stalls = looked_at(0.005)
    stalls.resume(2.0)
    stalls.look(2.005)
    assert stalls.since(0.0) == 0
    stalls.look(2.110)
    assert stalls.since(2.005) == pytest.approx(0.100)

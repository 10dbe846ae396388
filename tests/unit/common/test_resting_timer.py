"""A periodic timer that rests."""

from collections import Counter

import pytest

from common.resting_timer import RestingTimer
from tests.services.fake_broker import wait_until

INTERVAL_S = 0.001


@pytest.fixture
def seen():
    return Counter()


@pytest.fixture
def timer(seen):
    made = RestingTimer(INTERVAL_S, lambda: seen.update(looks=1))
    yield made
    made.close()


def test_it_rests_until_it_is_woken(timer, seen):
    assert timer.rests and not seen["looks"]
    assert timer.wake() and not timer.rests
    wait_until(lambda: seen["looks"] >= 3)


def test_waking_it_twice_is_told_and_harmless(timer, seen):
    assert timer.wake() and not timer.wake()
    wait_until(lambda: seen["looks"] >= 3)


def test_it_may_be_put_to_rest_by_its_own_look_and_be_woken_again(seen):
    def look() -> None:
        seen.update(looks=1)
        timer.rest()

    timer = RestingTimer(INTERVAL_S, look)
    for number in range(1, 4):
        assert timer.wake()
        wait_until(lambda: timer.rests)
        assert seen["looks"] == number


def test_a_closed_one_is_never_woken_again(timer):
    timer.wake()
    timer.close()
    assert not timer.wake() and timer.rests

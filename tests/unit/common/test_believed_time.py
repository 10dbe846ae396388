"""Wall time that does not follow steps ahead, under clocks of the test."""

import pytest

from common.believed_time import DRIFT_MS, BelievedTime
from common.clock import FakeClock

HOUR = 3_600_000


class Machine:
    """A clock, and the time that is believed on it, checked once per second."""

    def __init__(self, **start: int) -> None:
        self.clock = FakeClock()
        self.time = BelievedTime(self.clock.now_ms, lambda: round(self.clock.monotonic_s() * 1000), **start)

    def run(self, ms: int, every_ms: int = 1000) -> int:
        """Let time pass; returns how much passed for those who believe."""
        before = self.time.now_ms()
        for _ in range(ms // every_ms):
            self.clock.advance(every_ms)
            self.time.check()
        return self.time.now_ms() - before


def test_time_that_passes_counts():
    machine = Machine()
    assert machine.run(2 * HOUR) == 2 * HOUR
    assert machine.time.sentence == ""


@pytest.mark.parametrize("step_ms", [2 * DRIFT_MS, 5 * HOUR, 24 * 365 * HOUR])
def test_a_step_ahead_does_not_count_before_as_much_time_has_passed(step_ms):
    machine = Machine()
    machine.clock.step(step_ms)
    assert machine.time.now_ms() == machine.clock.now_ms() - step_ms
    assert machine.run(min(step_ms, 4 * HOUR), every_ms=20_000) <= 4 * HOUR
    assert machine.time.ahead_ms in (step_ms, 0)


def test_a_step_ahead_counts_once_the_clock_has_shown_it_for_its_own_size():
    machine = Machine()
    machine.clock.step(HOUR)
    assert machine.run(HOUR - 1000) == HOUR - 1000
    assert machine.time.remaining_ms == 1000 or machine.time.remaining_ms == 2000
    machine.run(3000)
    assert machine.time.now_ms() == machine.clock.now_ms()
    assert machine.time.ahead_ms == 0


def test_a_clock_that_is_set_right_again_counts_at_once():
    machine = Machine()
    machine.clock.step(100 * HOUR)
    machine.run(HOUR, 10_000)
    machine.clock.step(-100 * HOUR)
    assert machine.run(1000) == 1000
    assert machine.time.ahead_ms == 0
    assert machine.time.now_ms() == machine.clock.now_ms()


def test_a_further_step_begins_the_wait_again():
    machine = Machine()
    machine.clock.step(HOUR)
    machine.run(HOUR // 2)
    machine.clock.step(HOUR)
    assert machine.run(HOUR) == HOUR
    assert machine.time.ahead_ms == 2 * HOUR
    assert machine.time.remaining_ms > HOUR - 5000


def test_a_step_back_counts_at_once():
    machine = Machine()
    machine.clock.step(-HOUR)
    assert machine.time.now_ms() == machine.clock.now_ms()
    assert machine.run(HOUR) == HOUR


def test_many_small_steps_cannot_make_time_run_fast():
    machine = Machine()
    before = machine.time.now_ms()
    for _ in range(3600):
        machine.clock.step(10_000)
        machine.run(1000)
    assert machine.time.now_ms() - before <= HOUR + 2 * DRIFT_MS


def test_a_clock_that_drifts_within_bounds_is_followed():
    machine = Machine()
    for _ in range(3600):
        machine.clock.step(10)
        machine.run(1000)
    assert machine.time.now_ms() == machine.clock.now_ms()


def test_an_operator_can_say_that_the_clock_is_right():
    machine = Machine()
    machine.clock.step(1000 * HOUR)
    machine.run(1000)
    assert "3,600,000 s ahead" in machine.time.sentence
    machine.time.accept()
    assert machine.time.now_ms() == machine.clock.now_ms()
    assert machine.run(HOUR, 10_000) == HOUR


def test_time_continues_where_a_process_left_it():
    machine = Machine(believed_ms=FakeClock().now_ms() - 5 * HOUR, waited_ms=4 * HOUR)
    assert machine.run(HOUR - 1000) == HOUR - 1000
    assert machine.run(3000) > 5 * HOUR


def test_a_user_that_only_asks_for_the_time_gets_it_with_steps_left_out():
    machine = Machine()
    for _ in range(10):
        machine.clock.advance(500)
        assert machine.time.checked_ms() == machine.clock.now_ms()
    machine.clock.step(HOUR)
    machine.clock.advance(500)
    assert machine.time.checked_ms() == machine.clock.now_ms() - HOUR
    for _ in range(7300):
        machine.clock.advance(500)
        machine.time.checked_ms()
    assert machine.time.checked_ms() == machine.clock.now_ms()

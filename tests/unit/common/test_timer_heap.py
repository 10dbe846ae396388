"""Timers that mostly never fire."""

from common.timer_heap import TimerHeap


def test_the_wheel_fires_nothing_early_nothing_twice_and_nothing_dropped():
    wheel = TimerHeap(tick_ms=20)
    kept = wheel.schedule(1_001, "kept")
    wheel.cancel(wheel.schedule(1_001, "dropped"), "dropped")
    wheel.schedule(5_000, "later")
    assert (kept, wheel.next_at_ms()) == (51, 1_020)
    assert wheel.pop_due(1_001) == []
    assert wheel.pop_due(1_020) == ["kept"]
    assert wheel.pop_due(2_000) == []
    assert wheel.next_at_ms() == 5_000

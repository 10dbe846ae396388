"""The pace of a drain: how it fills a rate with small batches, and gives way to a loop that is busy. By a clock that is turned by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_proxy.buffer.pace import BATCH_MAX, BATCH_MIN, PER_S, SHARE_MIN, Pace

LIVE_PER_S = 1000


def drain(
    pace: Pace, entries: int, batch_s: float, late_s: float = 0.0002, at_s: float = 0.0
) -> tuple[float, list[int]]:
    """When a batch takes all that is left, with messages joining it all the while; and the batches."""
    batches: list[int] = []
    left = float(entries)
    while not batches or batches[-1] < left:
        before_s = at_s
        batches.append(min(pace.batch, int(left)))
        at_s += batch_s
        at_s += pace.drained(batches[-1], batch_s, at_s) + late_s
        pace.woke(late_s)
        left += (at_s - before_s) * LIVE_PER_S - batches[-1]
    return at_s, batches


@pytest.mark.parametrize(("batch_s", "late_s"), [(0.001, 0.0), (0.003, 0.001), (0.010, 0.002), (0.008, 0.006)])
def test_ten_minutes_at_a_thousand_a_second_are_drained_within_a_minute_beside_them(batch_s, late_s):
    took_s, _ = drain(Pace(PER_S), 600 * LIVE_PER_S, batch_s, late_s)
    assert 600 * LIVE_PER_S / PER_S < took_s < 60


def test_batches_are_as_small_as_the_rate_allows():
    for batch_s, fits in ((0.0002, BATCH_MIN + 1), (0.004, 90), (0.1, BATCH_MAX)):
        _, batches = drain(Pace(15_000), 50_000, batch_s)
        assert max(batches) <= fits and batches[-2] > fits / 2


def test_a_loop_that_is_late_slows_the_drain_down_to_where_it_began_and_not_further():
    pace = Pace(10_000)
    drain(pace, 20_000, 0.002)
    assert pace.per_s == 10_000
    for _ in range(200):
        pace.woke(0.02)
    assert pace.per_s == SHARE_MIN * 10_000


def test_a_loop_that_is_on_time_again_has_the_full_rate_within_a_second():
    pace = Pace(10_000)
    for _ in range(200):
        pace.woke(0.02)
    took_s, _ = drain(pace, 8000, 0.002)
    assert pace.per_s == 10_000 and took_s < 2


def test_one_late_turn_in_a_hundred_costs_little_rate():
    pace = Pace(10_000)
    drain(pace, 20_000, 0.002)
    rates = []
    for turn in range(1000):
        pace.woke(0.02 if turn % 100 == 0 else 0.0)
        rates.append(pace.per_s)
    assert sum(rates) / len(rates) > 9500


def test_a_batch_that_waited_for_an_engine_is_not_made_up_for_by_a_storm():
    pace = Pace(10_000)
    pace.drained(16, 600.0, 600.0)
    at_s, count = 600.0, 0
    while at_s < 601.0:
        count += pace.batch
        at_s += 0.001
        at_s += pace.drained(pace.batch, 0.001, at_s)
    assert count < 10_000 * 1.1


@given(
    st.lists(st.tuples(st.integers(1, 200), st.floats(0, 100), st.floats(0, 10)), max_size=60), st.integers(1, 10**7)
)
def test_whatever_happens_the_pace_stays_within_its_bounds(turns, per_s_max):
    pace, now_s = Pace(per_s_max), 0.0
    for count, took_s, late_s in turns:
        now_s += took_s
        pause_s = pace.drained(count, took_s, now_s)
        pace.woke(late_s)
        now_s += pause_s + late_s
        assert (
            0 < pause_s <= count / (SHARE_MIN * per_s_max) * 2 + 1e6 / per_s_max
            and BATCH_MIN <= pace.batch <= BATCH_MAX
        )
        assert SHARE_MIN * per_s_max <= pace.per_s <= per_s_max

"""Growth, days until a disk is full, limits that do not fit, and the plots' scales."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import OptionsError
from pipeline.traffic.figures import NamedCount, TopicTraffic, TrafficStep
from pipeline.traffic.forecast import (
    DAY_S,
    TopicForecast,
    TopicLimits,
    disk_forecast,
    forecast_of,
    limits_of,
    line_of,
    topic_limits,
)  # fmt: skip
from pipeline.traffic.measures import STEPS_MAX, step_of
from pipeline.traffic.plots import TIMES_MAX, nice_top, quantity, time_ticks

HOUR_S, GIB = 3600, 1 << 30


def steps(hours, rate):
    """One step per hour; `rate(hour)` bytes in it."""
    return [TrafficStep(HOUR_S * hour, 1, round(rate(hour)), None, None) for hour in range(hours)]


def traffic(made, peak_messages=600, peak_bytes=60_000):
    size = sum(each.size_bytes for each in made)
    return TopicTraffic(
        "orders", len(made), size, 0, made[-1].at_s, peak_messages, peak_bytes, 0, None, None, None, None, 1, 0,
        [NamedCount("0", 1)], [], [], made,
    )  # fmt: skip


def test_a_straight_line_is_found_and_a_short_range_has_none():
    at_end, growth = line_of(steps(100, lambda hour: 1000 + 10 * hour), HOUR_S)
    assert growth == pytest.approx(10 * 24 * 24)
    assert at_end == pytest.approx((1000 + 10 * 98) * 24)
    assert line_of(steps(40, lambda hour: 1000), HOUR_S) is None


def test_a_disk_is_full_after_what_comes_and_is_not_deleted():
    def days(free, retention_days, growth=0.0, bound=0):
        one = TopicForecast("t", GIB, growth, 0, [])
        limits = {"t": TopicLimits(retention_bytes=bound)}
        return disk_forecast([one], {"t": 0}, limits, retention_days * DAY_S * 1000, free).days

    assert days(10 * GIB + 1, 100) == 11
    assert days(10 * GIB + 1, 10) is None
    assert days(10 * GIB + 1, 100, growth=GIB) == 4  # 2 + 3 + 4 + 5
    assert days(10 * GIB + 1, 100, bound=5 * GIB) is None


def test_limits_that_do_not_fit_are_told():
    limits = TopicLimits(retention_bytes=240_000, rate_messages=12, rate_bytes=5000)
    found = forecast_of(traffic(steps(100, lambda hour: 10_000)), HOUR_S, limits, 72 * HOUR_S * 1000)
    assert found.kept_bytes == 240_000
    assert len(found.faults) == 2
    assert "keeps 24.0 h, not the 72 h" in found.faults[0]
    assert "10 messages/s; the limit is 12" in found.faults[1]


def test_limits_are_those_of_the_topic_or_of_its_longest_family():
    text = json.dumps([{"name": "a.*", "retention_ms": 1}, {"name": "a.b.*", "retention_ms": 2}, {"name": "a.b.c"}])
    found = topic_limits(text)
    assert [limits_of(name, found) for name in ("a.x", "a.b.x", "a.b.c", "z")] == [
        TopicLimits(1), TopicLimits(2), TopicLimits(), None,
    ]  # fmt: skip
    with pytest.raises(OptionsError, match="penstock topic list -o json"):
        topic_limits("[1]")


@given(st.floats(1e-3, 1e15))
def test_an_axis_ends_above_its_highest_value_and_not_far(value):
    assert value * 0.99 <= nice_top(value) <= value * 1.7


@given(st.integers(0, 1 << 31), st.integers(60, 400 * DAY_S))
def test_an_axis_of_time_has_few_ticks_and_a_range_few_steps(first, span):
    assert len(time_ticks(first, first + span)) <= TIMES_MAX + 1
    assert span / step_of(span) <= STEPS_MAX or span > 240 * 7 * DAY_S


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0, "", "0"), (999, "", "999"), (1234, "", "1.23 k"), (12_000, "", "12 k"), (1536, "B", "1.5 KiB"), (5, "ms", "5 ms"),
     (0, "B", "0 B"), (100 << 20, "B", "100 MiB")],
)  # fmt: skip
def test_quantities_are_short(value, unit, text):
    assert quantity(value, unit) == text

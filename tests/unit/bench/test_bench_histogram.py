"""The histogram against plain sorting, and the planned times of an open loop."""

import itertools
import math
import random

import pytest

pytest.importorskip("bench._load")

from bench._histogram import Histogram
from bench._schedule import planned_times

SHARES = (0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)


def reference(values: list[int], share: float) -> int:
    return sorted(values)[max(1, math.ceil(len(values) * share)) - 1]


@pytest.mark.parametrize("seed", range(4))
def test_percentiles_are_within_one_percent_of_the_sorted_values(seed):
    draw = random.Random(seed)
    values = [int(10 ** draw.uniform(0, 11)) for _ in range(20_000)]
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    for share in SHARES:
        assert histogram.percentile(share) == pytest.approx(reference(values, share), rel=0.01)


def test_values_below_256_ns_and_the_maximum_are_exact():
    histogram = Histogram()
    for value in [*range(256), 123_456_789]:
        histogram.record(value)
    assert [histogram.percentile((number + 0.5) / 257) for number in range(256)] == list(range(256))
    assert histogram.percentile(1.0) == histogram.max_ns == 123_456_789


def test_shares_are_counted_exactly_at_their_bounds():
    histogram = Histogram()
    for value in (999_999, 1_000_000, 99_999_999, 100_000_000):
        histogram.record(value)
    assert (histogram.share_under_1_ms, histogram.share_under_100_ms) == (0.25, 0.75)


def test_an_empty_histogram_answers_zero():
    histogram = Histogram()
    assert (len(histogram), histogram.percentile(0.99), histogram.mean_ns, histogram.share_under_1_ms) == (0, 0, 0, 0)


def test_a_value_beyond_the_last_bucket_is_kept_as_the_maximum_and_a_negative_one_as_zero():
    histogram = Histogram()
    histogram.record(1 << 60)
    histogram.record(-5)
    assert (len(histogram), histogram.max_ns, histogram.percentile(0.5)) == (2, 1 << 60, 0)


def test_even_spacing_does_not_drift():
    times = planned_times(30_000, False, 30_001)
    assert times[-1] == pytest.approx(1e9, abs=10)
    assert max(b - a for a, b in itertools.pairwise(times)) <= 33_334


def test_poisson_gaps_have_the_right_mean_and_spread_and_repeat_with_their_seed():
    times = planned_times(1000, True, 50_000, seed=7)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1e6, rel=0.03)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.02)
    assert times == planned_times(1000, True, 50_000, seed=7) != planned_times(1000, True, 50_000, seed=8)

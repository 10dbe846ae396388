"""Durations by bounds, in both forms."""

import pytest

from engine.env import durations as reference
from engine.env import native
from engine.env.native import NodeClock

FORMS = [pytest.param(reference.Durations, id="reference"), pytest.param(native.Durations, id="selected")]
FIRST_NS, LAST_NS = reference.FIRST_NS, reference.FIRST_NS << reference.BOUNDS - 1


@pytest.mark.parametrize("form", FORMS)
def test_a_duration_counts_at_the_lowest_bound_that_it_does_not_exceed(form):
    times = form()
    for duration_ns, bucket in (
        (0, 0), (FIRST_NS, 0), (FIRST_NS + 1, 1), (2 * FIRST_NS, 1), (LAST_NS, reference.BOUNDS - 1),
        (LAST_NS + 1, reference.BOUNDS), (LAST_NS * 1000, reference.BOUNDS),
    ):  # fmt: skip
        before = times.counts[bucket]
        times.add(duration_ns, 1)
        assert times.counts[bucket] == before + 1, duration_ns


@pytest.mark.parametrize("form", FORMS)
def test_several_durations_are_counted_at_once(form):
    times = form()
    times.add(3 * FIRST_NS, 5)
    assert (times.counts[2], sum(times.counts), times.total_ns) == (5, 5, 15 * FIRST_NS)


@pytest.mark.parametrize("form", FORMS)
def test_a_duration_ends_now_by_the_given_clock(form):
    class SteppedClock(NodeClock):
        def monotonic_ns(self) -> int:
            return 10 * FIRST_NS

    times = form()
    times.since(SteppedClock(), 6 * FIRST_NS, 2)
    assert (times.counts[2], times.total_ns) == (2, 8 * FIRST_NS)


def test_bounds_are_in_seconds_and_end_above_a_second():
    assert reference.BOUNDS_S[0] == 62.5e-6 and reference.BOUNDS_S[-1] == 1.024

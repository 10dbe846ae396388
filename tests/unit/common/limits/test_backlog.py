"""The backlog breaker's rules, held against a model by random walks of a group's lag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.limits.backlog import CLOSE_AT, BacklogBreaker, Bounds, Reason


def judged(breaker: BacklogBreaker, bounds: Bounds, messages: int, bytes: int = 0) -> bool:
    bound = bounds.broken(messages, bytes, breaker.scale)
    breaker.judge(Reason("billing", bound) if bound else None)
    return breaker.reason is not None


def test_it_opens_at_its_bound_and_stays_open_until_the_group_is_below_seven_tenths_of_it():
    breaker, bounds = BacklogBreaker(), Bounds(messages=100)
    lags = [99, 100, 99, 70, 71, 69, 70, 99, 100]
    assert [judged(breaker, bounds, lag) for lag in lags] == [False, True, True, True, True, False, False, False, True]


@pytest.mark.parametrize(
    ("bounds", "messages", "bytes", "reached"),
    [
        (Bounds(messages=10), 10, 1 << 40, "messages"),
        (Bounds(bytes=1000), 1 << 40, 1000, "bytes"),
        (Bounds(messages=10, bytes=1000), 9, 1000, "bytes"),
        (Bounds(messages=10, bytes=1000), 9, 999, None),
        (Bounds(age_ms=1), 1 << 40, 1 << 40, None),
        (Bounds(), 1 << 40, 1 << 40, None),
    ],
)
def test_what_has_no_bound_may_be_as_far_behind_as_it_likes(bounds, messages, bytes, reached):
    assert bounds.broken(messages, bytes, 1.0) == reached


def test_judge_says_when_it_opens_and_closes_and_not_when_another_group_is_the_reason():
    breaker = BacklogBreaker()
    reasons = [None, Reason("a", "messages"), Reason("b", "age"), None, None]
    assert [breaker.judge(reason) for reason in reasons] == [False, True, False, True, False]


@given(bound=st.integers(1, 1000), lags=st.lists(st.integers(0, 2000), max_size=50))
def test_it_is_open_exactly_since_the_last_lag_at_the_bound_with_none_below_the_lower_one_behind_it(bound, lags):
    breaker, bounds = BacklogBreaker(), Bounds(messages=bound)
    model = False
    for lag in lags:
        model = lag >= bound or (model and lag >= CLOSE_AT * bound)
        assert judged(breaker, bounds, lag) == model

"""Back-offs: which delay follows which attempt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.retry import DelayList, Exponential, parse_retry, parse_retry_text


def never() -> float:
    return 0.0


def always() -> float:
    return 1.0


@pytest.mark.parametrize(("attempt", "delay_ms"), [(1, 10), (2, 200), (3, 3_000), (4, 3_000), (1_000, 3_000)])
def test_the_last_delay_of_a_list_stands_for_all_further_attempts(attempt, delay_ms):
    assert DelayList((10, 200, 3_000)).delay_ms(attempt, never) == delay_ms


@pytest.mark.parametrize(("attempt", "delay_ms"), [(1, 100), (2, 300), (3, 900), (4, 1_000), (1_000, 1_000)])
def test_an_exponential_back_off_grows_up_to_its_maximum(attempt, delay_ms):
    assert Exponential(100, 3.0, 1_000, 0.0).delay_ms(attempt, never) == delay_ms


@given(st.integers(0, 10_000), st.floats(1, 100), st.integers(0, 10_000), st.floats(0, 1), st.integers(1, 1_000))
def test_jitter_only_shortens_and_never_by_more_than_its_share(first_ms, factor, max_ms, jitter, attempt):
    back_off = Exponential(first_ms, factor, max_ms, jitter)
    longest, shortest = back_off.delay_ms(attempt, never), back_off.delay_ms(attempt, always)
    assert 0 <= shortest <= longest <= max_ms
    assert shortest >= longest * (1 - jitter) - 1


def test_a_back_off_on_a_command_line_is_what_the_configuration_keeps():
    assert parse_retry_text("1000, 5000") == [1_000, 5_000]
    assert parse_retry(parse_retry_text("factor=3,max_ms=10")) == Exponential(factor=3.0, max_ms=10)

"""The token buckets, native and twin: what they let through, and that they agree."""

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.limits import NATIVE, Meter
from common.limits import meter as meter_pure

FORMS = [meter_pure.Meter, Meter] if NATIVE else [meter_pure.Meter]


@pytest.fixture(params=FORMS, ids=lambda form: form.__module__)
def meter(request):
    return request.param()


def test_without_rates_everything_passes(meter):
    assert meter.wait_s(1e9, 1e12, 5.0) == 0


def test_a_full_bucket_gives_a_second_of_its_rate_and_then_one_by_one(meter):
    meter.set_rates(10, None, 100.0)
    for _ in range(10):
        assert meter.wait_s(1, 1, 100.0) == 0
        meter.take(1, 1)
    assert meter.wait_s(1, 1, 100.0) == pytest.approx(0.1)
    assert meter.wait_s(3, 1, 100.0) == pytest.approx(0.3)
    assert meter.wait_s(1, 1, 100.11) == 0


def test_the_scarcer_of_messages_and_bytes_decides(meter):
    meter.set_rates(100, 1000, 0.0)
    assert meter.wait_s(1, 1000, 0.0) == 0
    meter.take(1, 1000)
    assert meter.wait_s(1, 500, 0.0) == pytest.approx(0.5)


def test_what_is_larger_than_the_bucket_passes_when_it_is_full_and_is_paid_for_afterwards(meter):
    meter.set_rates(None, 1000, 0.0)
    assert meter.wait_s(1, 5000, 0.0) == 0
    meter.take(1, 5000)
    assert meter.wait_s(1, 1000, 0.0) == pytest.approx(5.0)
    assert meter.wait_s(1, 1, 4.001) == 0


def test_another_rate_counts_from_now_on_and_keeps_the_tokens(meter):
    meter.set_rates(10, None, 0.0)
    meter.take(10, 0)
    meter.set_rates(100, None, 0.5)  # 5 tokens have come meanwhile
    assert meter.wait_s(6, 0, 0.5) == pytest.approx(0.01)
    meter.set_rates(2, None, 0.5)  # what is above the smaller bucket is gone
    assert meter.room(0.5)[0] == 2


def test_a_rate_of_zero_gives_nothing_and_tells_a_wait_all_the_same(meter):
    meter.set_rates(10, None, 0.0)
    meter.take(10, 0)
    meter.set_rates(0, None, 0.0)
    assert meter.wait_s(1, 0, 1000.0) == meter_pure.STALLED_S


def test_a_clock_that_stands_or_steps_back_makes_no_tokens(meter):
    meter.set_rates(10, None, 50.0)
    meter.take(10, 0)
    assert meter.wait_s(1, 0, 50.0) == meter.wait_s(1, 0, 49.0) == pytest.approx(0.1)


def test_demand_counts_what_was_taken_and_what_was_refused_and_which_was_short(meter):
    meter.set_rates(10, 10_000, 0.0)
    meter.take(10, 50)
    assert meter.read_demand() == (10, 50, False, False)
    meter.refuse(3, 30)
    assert meter.read_demand() == (3, 30, True, False)
    assert meter.read_demand() == (0, 0, False, False)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "rates"]),
        st.floats(0, 3),  # seconds that pass before it
        st.integers(1, 50),
        st.integers(0, 5000),
    ),
    max_size=60,
)


@given(STEPS)
def test_both_forms_say_the_same_at_every_step(steps):
    if not NATIVE:
        pytest.skip("the native meter is not built")
    pair, now = (Meter(), meter_pure.Meter()), 0.0
    for kind, seconds, messages, size in steps:
        now += seconds
        if kind == "rates":
            for each in pair:
                each.set_rates(messages, size or None, now)
            continue
        waits = [each.wait_s(messages, size, now) for each in pair]
        assert waits[0] == waits[1]
        for each in pair:
            (each.refuse if waits[0] > 0.1 else each.take)(messages, size)
    assert pair[0].read_demand() == pair[1].read_demand()
    assert pair[0].room(now) == pair[1].room(now)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 40)), max_size=200), st.integers(1, 100))
def test_never_more_passes_than_the_rate_the_bucket_and_one_call(steps, rate):
    meter, now, passed = Meter(), 0.0, 0
    meter.set_rates(rate, None, now)
    for seconds, count in steps:
        now += seconds
        if meter.wait_s(count, 0, now) == 0:
            meter.take(count, 0)
            passed += count
    assert passed <= rate * now + max(1, rate) + 40 + 1e-6


def test_a_meter_can_be_watched_weakly(meter):
    assert weakref.ref(meter)() is meter

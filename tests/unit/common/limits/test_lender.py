"""Slices of a limit: fair, whole, and never more than there is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from common.limits.lender import LIVE_S, MARGIN, RESERVE, SLICE_S, QuotaLender, divide

TOTAL = 1000.0


@given(st.floats(1, 1e9), st.dictionaries(st.text(max_size=3), st.floats(0, 1e10), min_size=1, max_size=20))
def test_shares_add_up_to_the_total_but_for_a_reserve_of_what_nobody_wants(total, demands):
    shares = divide(total, demands)
    wanted = min(1, sum(demands.values()) * MARGIN / total)
    assert (1 - RESERVE) * total <= sum(shares.values()) * (1 + 1e-9)
    assert wanted * total * (1 - 1e-9) <= sum(shares.values()) <= total * (1 + 1e-9)
    assert min(shares.values()) > 0


def test_who_wants_little_gets_it_and_the_others_share_the_rest_alike():
    shares = divide(TOTAL, {"a": 5000, "b": 9000, "c": 100})
    assert 100 <= shares["c"] <= 105
    assert shares["a"] == pytest.approx(shares["b"]) == pytest.approx((TOTAL - shares["c"]) / 2)


def test_what_nobody_wants_is_spread_evenly_but_for_a_reserve():
    shares = divide(TOTAL, {"a": 0, "b": 0})
    assert shares["a"] == shares["b"] == 450


def started(now=0.0):
    """A lender that has outlived the leases of the one before it."""
    return QuotaLender(now - SLICE_S)


def test_a_share_moves_to_who_needs_it_within_two_renewals():
    lender = started()
    lender.renew("t", TOTAL, "a", 2000, 2, 0.0)
    assert lender.renew("t", TOTAL, "b", 2000, 2, 0.1) < 20  # a has nearly all of it still
    assert lender.renew("t", TOTAL, "a", 2000, 2, 0.2) == pytest.approx(500)
    assert lender.renew("t", TOTAL, "b", 2000, 2, 0.3) == pytest.approx(500)


def test_processes_that_come_find_some_of_a_generous_limit_and_soon_as_much_as_the_others():
    lender = started()
    lender.renew("t", 100_000, "a", 100, 4, 0.0)
    first = [lender.renew("t", 100_000, name, 40, 4, 0.05) for name in "bcd"]
    assert min(first) > 1000
    assert first[0] == pytest.approx(first[1])
    lender.renew("t", 100_000, "a", 100, 4, 0.2)
    again = [lender.renew("t", 100_000, name, 100, 4, 0.25) for name in "bcd"]
    assert min(again) > 20_000


def test_a_dead_process_share_is_lent_again_when_its_lease_has_run_out():
    lender = started()
    lender.renew("t", TOTAL, "a", 2000, 2, 0.0)
    assert lender.renew("t", TOTAL, "b", 2000, 2, SLICE_S + 0.01) == pytest.approx(TOTAL)


def test_a_new_lender_gives_static_shares_until_old_leases_have_run_out():
    lender = QuotaLender(10.0)
    assert lender.renew("t", TOTAL, "a", 2000, 4, 10.1) == TOTAL / 4
    assert lender.renew("t", TOTAL, "a", 2000, 4, 10.1 + SLICE_S) == pytest.approx(TOTAL)


def test_who_lowered_the_total_gets_nothing_while_others_hold_more_than_it():
    lender = started()
    lender.renew("t", TOTAL, "a", 2000, 2, 0.0)
    assert lender.renew("t", 10.0, "b", 2000, 2, 0.1) == 0
    assert lender.renew("t", 10.0, "a", 2000, 2, 0.2) == pytest.approx(5)


def test_processes_of_a_role_are_counted_while_they_speak():
    lender = started()
    assert [lender.live("producer_proxy", name, 0.0) for name in "abc"] == [1, 2, 3]
    assert lender.live("consumer_proxy", "a", 0.0) == 1
    assert lender.live("producer_proxy", "a", LIVE_S + 0.1) == 1


class Borrowing(RuleBasedStateMachine):
    """Any processes renewing at any time: what is lent and has not run out never adds up to more than the total."""

    def __init__(self):
        super().__init__()
        self.now, self.lender, self.held = 0.0, started(), {}

    @rule(process=st.sampled_from("abcd"), demand=st.floats(0, 1e6))
    def renew(self, process, demand):
        share = self.lender.renew("t", TOTAL, process, demand, 4, self.now)
        self.held[process] = (share, self.now + SLICE_S)

    @rule(seconds=st.floats(0, 1.5))
    def wait(self, seconds):
        self.now += seconds
        self.lender.live("producer_proxy", "z", self.now)  # which sweeps too

    @invariant()
    def no_more_than_the_total_is_lent(self):
        assert sum(share for share, until in self.held.values() if until > self.now) <= TOTAL * (1 + 1e-9)


TestBorrowing = Borrowing.TestCase
TestBorrowing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

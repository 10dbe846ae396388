"""Slots at a limit: who waits as told is rejected once per accepted call, waits as long as the others, and wastes none
of the limit.
"""

import heapq
import random

import pytest

from common.limits import Meter
from common.limits.meter import PROMISED_S
from common.limits.retry_slot import EARLY_S, LATE_S, RetrySlot
from producer_proxy.admission.rate_limits import RateLimitAdmission

WARM_S = 5.0


class Crowd:
    """Clients that send, wait as told, and send again at once, in virtual time.

    Args:
        keeps: whether each client stays on its connection, and so keeps its slot.
        wobble: by which part the rate changes, five times per second, as a slice of a cluster-wide limit does.
    """

    def __init__(self, clients, rate, keeps=True, wobble=0.0, seed=1):
        self.rate, self.keeps, self.wobble, self.random = rate, keeps, wobble, random.Random(seed)
        self.meter = Meter()
        self.meter.set_rates(rate, None, 0.0)
        self.slots = [None] * clients
        self.began = [0.0] * clients
        self.accepted = [0] * clients
        self.refused, self.waits = 0, []

    def run(self, seconds):
        due = [(self.random.random() * 0.01, client) for client in range(len(self.slots))]
        heapq.heapify(due)
        changes_s = 0.0
        while due[0][0] < seconds:
            now, client = heapq.heappop(due)
            if self.wobble and now > changes_s:
                changes_s += 0.2
                self.meter.set_rates(self.rate * (1 + self.random.uniform(-self.wobble, self.wobble)), None, now)
            back_s = self.call(client, now)
            heapq.heappush(due, (now + back_s + 0.0005 + self.random.random() * 0.002, client))
        return self

    def call(self, client, now):
        """Seconds until the client comes again."""
        admission = RateLimitAdmission((self.meter,), now, self.slots[client] if self.keeps else None)
        broken = admission.admit(None, 100)
        self.slots[client] = admission.next_slot()
        if broken:
            self.refused += now > WARM_S
            return admission.retry_after_ms(broken) / 1000
        if now > WARM_S:
            self.accepted[client] += 1
            self.waits.append(now + admission.hold_s - self.began[client])
        self.began[client] = now + admission.hold_s
        return admission.hold_s

    @property
    def refused_per_accepted(self):
        return self.refused / sum(self.accepted)


@pytest.mark.parametrize(
    ("clients", "rate"), [(8, 20), (4, 5), (50, 20), (50, 200), (50, 400), (50, 1000), (200, 1000)]
)
def test_who_waits_as_told_is_rejected_at_most_once_per_call_and_all_wait_alike(clients, rate):
    crowd = Crowd(clients, rate).run(30)
    assert crowd.refused_per_accepted <= 1.02
    assert sum(crowd.accepted) >= 0.95 * rate * (30 - WARM_S)
    assert min(crowd.accepted) >= 0.9 * sum(crowd.accepted) / clients - 1
    assert max(crowd.waits) <= 1.3 * clients / rate + 0.1


def test_clients_that_come_by_another_connection_each_time_are_rejected_once_on_average():
    crowd = Crowd(50, 200, keeps=False).run(30)
    assert crowd.refused_per_accepted <= 1.05
    assert sum(crowd.accepted) >= 0.95 * 200 * (30 - WARM_S)
    assert min(crowd.accepted) >= 0.5 * sum(crowd.accepted) / 50


def test_a_rate_that_changes_by_a_tenth_costs_few_second_refusals():
    crowd = Crowd(50, 100, wobble=0.1).run(30)
    assert crowd.refused_per_accepted <= 1.1
    assert sum(crowd.accepted) >= 0.95 * 100 * (30 - WARM_S)


def limited(rate, taken):
    meter = Meter()
    meter.set_rates(rate, None, 0.0)
    meter.take(taken, 0)
    return meter


def call(meter, now, slot=None, timeout_s=3.0):
    """(refused, time told in ms or held in ms, slot)."""
    admission = RateLimitAdmission((meter,), now, slot, timeout_s)
    broken = admission.admit(None, 100)
    following = admission.next_slot()
    return bool(broken), admission.retry_after_ms(broken) if broken else 1000 * admission.hold_s, following


def test_each_rejected_call_gets_the_next_slot():
    meter = limited(5, 5)
    assert [call(meter, 0.0)[1] for _ in range(4)] == pytest.approx([200, 400, 600, 800], abs=1.1)


def test_a_caller_that_comes_too_early_keeps_its_slot_and_takes_nobodys():
    meter = limited(5, 5)
    _, told_ms, slot = call(meter, 0.0)
    for now in (0.05, 0.1, 0.15):
        refused, again_ms, slot = call(meter, now, slot)
        assert refused
        assert now * 1000 + again_ms == pytest.approx(told_ms, abs=1.1)
    assert call(meter, 0.15)[1] == pytest.approx(250, abs=1.1)


def test_a_caller_that_comes_too_early_and_asks_for_more_is_told_when_it_has_come():
    meter = limited(10, 10)
    admission = RateLimitAdmission((meter,), 0.0, RetrySlot(0.15, (meter,)), 3.0)
    broken = [admission.admit(None, 100) for _ in range(6)]
    admission.next_slot()
    assert admission.retry_after_ms(broken[-1]) >= 480


def test_a_caller_at_its_slot_goes_before_one_without():
    meter = limited(9, 9)
    slot = [call(meter, 0.0)[2] for _ in range(6)][3]
    meter.take(3.5, 0)  # others came in between
    refused, held_ms, _ = call(meter, slot.at, slot)
    assert not refused
    assert 0 < held_ms <= 100
    assert call(meter, slot.at)[0]


def test_a_slot_ends_when_its_caller_is_late_and_counts_for_its_limits_only():
    meter, other = limited(5, 5), limited(5, 5)
    slot = RetrySlot(10.0, (meter,))
    assert slot.is_ahead(9.9)
    assert not slot.is_ahead(10 - EARLY_S / 2)
    assert slot.is_due(meter, 10.0)
    assert not slot.is_due(other, 10.0)
    assert not slot.is_due(meter, 10 + LATE_S + 0.01)


def test_callers_that_do_not_return_delay_the_others_for_a_bounded_time():
    meter = limited(10, 10)
    for _ in range(10_000):
        meter.promise(1, 1, 0.0)
    assert meter.promise(1, 1, 0.0) <= PROMISED_S + 0.2
    assert meter.wait_s(1, 1, 1.0) == 0  # tokens that nobody takes are for whoever comes
    meter.take(1, 1)
    later_s = 1 + PROMISED_S
    meter.take(meter.room(later_s)[0], 0)
    assert meter.slot_s(1, 1, later_s) == pytest.approx(0.1)


@pytest.mark.parametrize("timeout_s", [0.005, 0.05, 0.1])
def test_a_call_without_the_time_for_a_hold_is_refused_and_not_timed_out(timeout_s):
    meter = limited(20, 20)
    assert call(meter, 0.0, timeout_s=timeout_s)[:2] == (True, 50)
    refused, held_ms, _ = call(limited(20, 20), 0.0)
    assert not refused
    assert held_ms == pytest.approx(50)

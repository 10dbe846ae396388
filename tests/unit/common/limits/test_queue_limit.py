"""The bound of a queue in front of a target: both forms agree, and three kinds of broker are told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.limits import NATIVE, QueueLimit
from common.limits import queue_limit as queue_limit_pure

FORMS = [queue_limit_pure.QueueLimit, QueueLimit] if NATIVE else [queue_limit_pure.QueueLimit]
HIGH, NORMAL, LOW = range(3)


@pytest.fixture(params=FORMS, ids=lambda form: form.__module__)
def limit(request):
    return request.param()


class Broker:
    """Takes one append after another, each in `fixed_s` and `each_s` a message; messages come evenly, `rate` a second."""

    def __init__(self, limit, fixed_s, each_s):
        self.limit, self.fixed_s, self.each_s = limit, fixed_s, each_s
        self.now, self.due = 0.0, 0.0
        self.filling, self.flying = [], []
        self.done_at = None
        self.stored = self.refused = 0
        self.waits = []

    def run(self, rate, seconds, grade=HIGH):
        """Returns messages stored a second."""
        before, end = self.stored, self.now + seconds
        while self.now < end:
            self.now += 0.001
            self._answer()
            while self.due <= self.now:
                self.due += 1 / rate
                if self.limit.admits(len(self.filling) + len(self.flying), 1, grade):
                    self.filling.append(self.now)
                else:
                    self.refused += 1
            if self.done_at is None and self.filling:
                self.flying, self.filling = self.filling, []
                self.done_at = self.now + self.fixed_s + self.each_s * len(self.flying)
            self.limit.look(self.flying[0] if self.flying else self.now, self.now)
        return (self.stored - before) / seconds

    def stand_still(self, seconds):
        """The proxy does, while the broker answers and callers wait; its answer is met first when it goes on."""
        self.now += seconds
        self.due = self.now

    def _answer(self):
        if self.done_at is not None and self.now >= self.done_at:
            self.limit.answered(self.flying[0], self.now, len(self.filling) + len(self.flying))
            self.waits += [self.now - at for at in self.flying]
            self.stored += len(self.flying)
            self.flying, self.done_at = [], None


def test_a_quick_broker_is_never_in_the_way(limit):
    broker = Broker(limit, 0.001, 0.00001)
    broker.run(5000, 10)
    assert broker.refused == 0


def test_three_times_its_capacity_costs_a_broker_no_tenth_of_it_and_the_queue_stays_short(limit):
    broker = Broker(limit, 0.002, 0.001)  # at most 1,000 a second
    broker.run(3000, 10)
    broker.waits.clear()
    assert broker.run(3000, 30) >= 900
    assert sorted(broker.waits)[-len(broker.waits) // 100] < 0.4
    assert limit.limit < 1000


def test_a_broker_that_becomes_slow_for_each_append_is_found_able_to_take_large_ones(limit):
    broker = Broker(limit, 0.001, 0.00001)
    broker.run(1000, 5)
    broker.fixed_s = 0.5
    broker.run(1000, 20)
    before = broker.refused
    assert broker.run(1000, 20) >= 850
    assert broker.refused - before < 4000


def test_a_broker_that_recovers_is_used_again_within_seconds(limit):
    broker = Broker(limit, 0.002, 0.002)  # at most 500 a second
    broker.run(3000, 20)
    broker.each_s = 0.00001
    broker.run(3000, 5)
    before = broker.refused
    broker.run(3000, 5)
    assert broker.refused == before


def test_stalls_far_apart_do_not_add_up_to_a_limit_that_refuses_the_next_burst(limit):
    broker = Broker(limit, 0.001, 0.00001)
    for _ in range(8):
        broker.run(1000, 3)
        broker.fixed_s = 0.45  # a stall of one append
        broker.run(1000, 0.02)
        broker.fixed_s = 0.001
    assert broker.refused == 0


def look_until(limit, oldest, start, end):
    """As the lane does, every 20 ms."""
    for step in range(round((end - start) / 0.02) + 1):
        limit.look(oldest, start + 0.02 * step)


def test_silence_lets_nothing_in_until_an_answer_comes(limit):
    look_until(limit, 0.9, 0.9, 1.0)
    limit.answered(0.999, 1.0, 1)
    look_until(limit, 1.0, 1.0, 1.4)
    assert limit.admits(10, 1, HIGH)
    look_until(limit, 1.0, 1.4, 1.6)
    assert not limit.admits(10, 1, HIGH)
    assert limit.admits(0, 1000, LOW)  # nothing waits: somebody has to try
    limit.answered(1.0, 1.7, 10)
    assert limit.admits(10, 1, HIGH)


def test_a_proxy_that_stands_still_again_and_again_does_not_take_it_for_the_brokers_doing(limit):
    broker = Broker(limit, 0.002, 0.0001)
    broker.run(9000, 3)
    before = limit.limit
    for _ in range(20):
        broker.stand_still(1.2)
        broker.run(9000, 1)
    assert broker.refused == 0 and limit.limit >= before


def test_behind_a_standstill_the_brokers_silence_counts_from_its_end(limit):
    look_until(limit, 0.0, 0.0, 0.1)
    limit.look(0.0, 3.0)
    assert limit.admits(10, 1, HIGH)
    look_until(limit, 0.0, 3.0, 3.48)
    assert limit.admits(10, 1, HIGH)
    look_until(limit, 0.0, 3.48, 3.6)
    assert not limit.admits(10, 1, HIGH)


def test_a_pause_without_appends_is_no_standstill(limit):
    limit.look(0.0, 0.0)
    limit.resume(60.0)
    look_until(limit, 60.0, 60.02, 60.18)
    limit.answered(60.0, 60.2, 1)
    assert limit.bound_s == pytest.approx(0.8)  # four times what this append took
    limit.resume(120.0)
    look_until(limit, 120.0, 120.0, 121.7)
    assert not limit.admits(10, 1, HIGH)


def test_a_loop_that_is_only_busy_measures_the_broker(limit):
    limit.look(1.0, 1.0)
    limit.answered(1.0, 1.001, 1)
    for step in range(1, 20):
        now = 1 + 0.1 * step
        limit.look(now, now)
        limit.answered(now - 0.4, now, 5000)
    assert limit.limit < 5000


def test_grades_are_let_in_up_to_their_share(limit):
    limit.limit = 1000
    assert [limit.admits(550, 50, grade) for grade in (HIGH, NORMAL, LOW)] == [True, True, True]
    assert [limit.admits(600, 50, grade) for grade in (HIGH, NORMAL, LOW)] == [True, True, False]
    assert [limit.admits(1000, 50, grade) for grade in (HIGH, NORMAL, LOW)] == [True, False, False]
    assert [limit.admits(2000, 1, grade) for grade in (HIGH, NORMAL, LOW)] == [False, False, False]


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3), st.integers(0, 1_000_000)), max_size=80))
def test_both_forms_say_the_same_and_stay_within_their_bounds(samples):
    pair, now = [form() for form in FORMS], 0.0
    for step, took, waiting in samples:
        now += step
        for each in pair:
            each.answered(now - took, now, waiting)
            each.look(now - took, now)
            assert queue_limit_pure.LIMIT_MIN <= each.limit <= queue_limit_pure.LIMIT_MAX
        assert len({(each.limit, each.bound_s, each.is_stalled) for each in pair}) == 1

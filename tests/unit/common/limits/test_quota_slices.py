"""A limit of a whole cluster: several processes with their own meters, one lender, a clock that the test turns."""

import json
import random
import weakref
from itertools import pairwise

import pytest

from common.limits import Meter
from common.limits.lender import LIVE_S, SLICE_S, QuotaLender
from common.limits.quota_slices import IDLE_S, LIMITS_A_TICK, TICK_S, TICKS_A_ROUND, QuotaSlices
from engine.ops.quota import lend

TOTAL = 900
STEP_S = 0.01


class Cluster:
    """Three processes. `offer(i, per_second)` sends so many messages a second through process i, as a Poisson stream."""

    def __init__(self, seed=1):
        self.now, self.random = 1000.0, random.Random(seed)
        self.lender = QuotaLender(self.now - SLICE_S)
        self.lender_is_up = True
        self.processes = [QuotaSlices("producer_proxy", f"p{i}", self.ask, lambda: self.now) for i in range(3)]
        self.total = TOTAL
        self.meters = [each.meter("topic:orders", TOTAL, 0) for each in self.processes]
        self.next_tick = [self.now + TICK_S * i / 3 for i in range(3)]
        self.offered = [0.0, 0.0, 0.0]
        self.passed = [0, 0, 0]

    def ask(self, payload, answer):
        if not self.lender_is_up:
            answer(203, b"")
            return
        request = json.loads(payload)
        live = self.lender.live(request["role"], request["process"], self.now)
        shares = [
            self.lender.renew(each["key"], each["total"], request["process"], each["demand"], live, self.now)
            for each in request["limits"]
        ]
        answer(0, json.dumps({"live": live, "shares": shares}).encode())

    def set_total(self, total):
        for each in self.processes:
            each.meter("topic:orders", total, 0)

    def run(self, seconds):
        """Let time pass; returns how many messages a second passed, of each process."""
        before = list(self.passed)
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for i, slices in enumerate(self.processes):
                if self.now >= self.next_tick[i]:
                    self.next_tick[i] += TICK_S
                    slices.tick()
                self._send(i)
        return [(after - old) / seconds for after, old in zip(self.passed, before, strict=True)]

    def _send(self, i):
        arrivals = self.offered[i] * STEP_S
        count = int(arrivals) + (self.random.random() < arrivals % 1)
        for _ in range(count):
            if self.meters[i].wait_s(1, 100, self.now) == 0:
                self.meters[i].take(1, 100)
                self.passed[i] += 1
            else:
                self.meters[i].refuse(1, 100)


@pytest.mark.parametrize(
    "offered",
    [
        (3000, 0, 0),
        (1500, 1500, 1500),
        (3000, 100, 0),
        (2000, 290, 290),
        (400, 400, 400),
        (2000, 20, 20),
        (1000, 1000, 1),
    ],
)
def test_the_cluster_passes_its_total_within_five_percent_under_any_skew(offered):
    cluster = Cluster()
    cluster.offered = offered
    cluster.run(3)  # the first burst is over, and demand is known
    assert sum(cluster.run(20)) == pytest.approx(TOTAL, rel=0.05)


def test_clients_that_move_to_another_process_take_the_limit_along():
    cluster = Cluster()
    for busy in (0, 1, 2):
        cluster.offered = [3000 if i == busy else 0 for i in range(3)]
        cluster.run(2.5)  # the process' burst of a second, and the move of the shares
        assert sum(cluster.run(8)) == pytest.approx(TOTAL, rel=0.05)


def test_below_the_limit_nothing_is_refused_whoever_sends():
    cluster = Cluster()
    cluster.offered = [500, 200, 50]
    cluster.run(3)
    assert sum(cluster.run(10)) == pytest.approx(750, rel=0.03)


def test_without_the_lender_each_falls_back_to_its_static_share_and_back_again():
    cluster = Cluster()
    cluster.offered = [3000, 0, 0]
    cluster.run(3)
    cluster.lender_is_up = False
    cluster.run(3)
    assert cluster.run(10)[0] == pytest.approx(TOTAL / 3, rel=0.02)
    cluster.offered = [3000, 3000, 3000]
    cluster.run(3)
    assert sum(cluster.run(10)) == pytest.approx(TOTAL, rel=0.05)
    cluster.lender_is_up = True
    cluster.offered = [3000, 0, 0]
    cluster.run(3)
    assert sum(cluster.run(10)) == pytest.approx(TOTAL, rel=0.05)


class Waiting(Cluster):
    """Clients that keep to a schedule and send one call at a time: at the limit they are held, and catch up later."""

    CALLS_PER_STEP_MAX = 15

    def __init__(self, *offered):
        super().__init__()
        self.offered, self.due, self.is_stalled = offered, [0.0] * 3, False
        self.unanswered = []  # questions while the engine stalls

    def ask(self, payload, answer):
        if self.is_stalled:
            self.unanswered.append((payload, answer))
        else:
            super().ask(payload, answer)

    def sides(self):
        """The limit's messages in the processes that are used."""
        return [each._limits["topic:orders"].sides["messages"] for each in self.processes[:2]]

    def stall(self, seconds):
        """Let the engine stand still: it answers no question, and clients wait for their sends."""
        self.is_stalled = True
        self.run(seconds)
        self.is_stalled = False
        while self.unanswered:
            self.ask(*self.unanswered.pop(0))

    def _send(self, i):
        self.due[i] += self.offered[i] * STEP_S
        for _ in range(0 if self.is_stalled else min(int(self.due[i]), self.CALLS_PER_STEP_MAX)):
            if self.meters[i].wait_s(1, 100, self.now) > 0:
                self.meters[i].refuse(0, 0)  # held
                break
            self.meters[i].take(1, 100)
            self.passed[i] += 1
            self.due[i] -= 1


@pytest.mark.parametrize("stall_s", [0.5, 0.8])
def test_a_stall_of_the_engine_is_a_fall_of_demand_for_one_tick_at_most(stall_s):
    cluster = Waiting(2000, 200, 0)
    cluster.run(5)
    before = [side.demand for side in cluster.sides()]
    cluster.stall(stall_s)
    # The first tick of the stall still has the answer to the question before.
    assert all(side.demand >= 0.59 * demand for side, demand in zip(cluster.sides(), before, strict=True))
    assert sum(cluster.run(3.2)) >= 0.98 * TOTAL


def test_a_demand_that_falls_while_the_lender_is_silent_is_seen_once_it_answers():
    cluster = Waiting(2000, 2000, 0)
    cluster.run(3)
    cluster.stall(0.6)
    cluster.offered, cluster.due[0] = (0, 2000, 0), 0.0
    cluster.run(2)
    assert cluster.run(5)[1] == pytest.approx(TOTAL, rel=0.05)


def test_another_total_is_at_work_at_once_and_exact_a_second_later():
    cluster = Cluster()
    cluster.offered = [3000, 1000, 0]
    cluster.run(5)
    cluster.set_total(300)
    assert sum(cluster.run(1)) < 600
    assert sum(cluster.run(10)) == pytest.approx(300, rel=0.05)


def test_a_lender_that_starts_anew_does_not_lend_twice():
    cluster = Cluster()
    cluster.offered = [3000, 3000, 0]
    cluster.run(5)
    cluster.lender = QuotaLender(cluster.now)
    assert sum(cluster.run(5)) == pytest.approx(TOTAL, rel=0.12)
    assert sum(cluster.run(10)) == pytest.approx(TOTAL, rel=0.05)


def test_a_process_that_never_reached_its_lender_is_limited_all_the_same():
    slices = QuotaSlices("producer_proxy", "p", lambda payload, answer: answer(203, b""), lambda: 5.0)
    meter = slices.meter("topic:orders", 10, 0)
    assert meter.room(5.0)[0] == 10


def test_one_key_is_one_meter_and_a_topic_without_limits_has_none():
    slices = QuotaSlices("producer_proxy", "p", lambda payload, answer: None, lambda: 5.0)
    assert slices.meter("topic:a", 0, 0) is None
    one = slices.meter("topic:a", 10, 0)
    assert slices.meter("topic:a", 20, 0) is one
    assert isinstance(one, Meter)


def test_only_limits_in_use_are_borrowed_and_those_that_nobody_holds_are_forgotten():
    asked, now = [], [0.0]

    def ask(payload, answer):
        asked.append([each["key"] for each in json.loads(payload)["limits"]])
        answer(0, json.dumps({"live": 1, "shares": [5.0] * len(asked[-1])}).encode())

    slices = QuotaSlices("producer_proxy", "p", ask, lambda: now[0])
    meter = slices.meter("topic:a", 10, 1000)
    slices.tick()
    assert asked.pop() == []  # a sign of life
    for _ in range(2):
        meter.take(1, 100)
        slices.tick()
        assert asked.pop() == ["topic:a:messages", "topic:a:bytes"]
        now[0] += IDLE_S + 1
        slices.tick()
        assert asked.pop() == []
    meter.take(1, 1)
    watched = weakref.ref(meter)
    del meter
    assert slices.meter("topic:a", 10, 1000) is watched()
    slices.tick()
    now[0] += IDLE_S + 1
    slices.tick()
    assert watched() is None
    assert slices._limits == {}


class Lone:
    """A process whose lender lends all; it counts what it is asked for."""

    def __init__(self):
        self.now, self.asked = 0.0, []
        self.slices = QuotaSlices("producer_proxy", "p", self.lend, lambda: self.now)

    def lend(self, payload, answer):
        limits = json.loads(payload)["limits"]
        self.asked += [each["key"] for each in limits]
        answer(0, json.dumps({"live": 1, "shares": [each["total"] for each in limits]}).encode())

    def tick(self):
        self.now += TICK_S
        self.asked.clear()
        self.slices.tick()
        return self.asked


def test_a_limit_that_is_not_in_use_costs_a_tick_nothing(monkeypatch):
    lone = Lone()
    held = [lone.slices.meter(f"topic:{i}", 1000, 0) for i in range(1000)]
    visited = []
    visit = QuotaSlices._visit
    monkeypatch.setattr(
        QuotaSlices, "_visit", lambda self, limit, *rest: (visited.append(limit.key), visit(self, limit, *rest))
    )
    lone.tick()
    assert visited == []
    held[7].take(5, 100)
    lone.tick()
    assert visited == ["topic:7"]
    for _ in range(round(IDLE_S / TICK_S) + 1):
        lone.tick()
    visited.clear()
    lone.tick()
    assert visited == []
    assert held[7].room(lone.now)[0] == 1000


def test_a_process_without_limits_in_use_shows_that_it_is_alive_before_its_lender_forgets_it_but_rarely():
    now, heard = [0.0], []

    def lend(payload, answer):
        heard.append(now[0])
        answer(0, b'{"live": 1, "shares": []}')

    slices = QuotaSlices("producer_proxy", "p", lend, lambda: now[0])
    for _ in range(100):
        slices.tick()
        now[0] += TICK_S
    gaps = [after - before for before, after in pairwise(heard)]
    assert heard[0] == 0.0 and max(gaps) < min(LIVE_S, SLICE_S) and min(gaps) > 3 * TICK_S


def test_a_limit_of_which_hardly_anything_is_used_is_not_borrowed():
    lone = Lone()
    little, much = lone.slices.meter("topic:little", 1000, 0), lone.slices.meter("topic:much", 1000, 0)
    for _ in range(10):
        little.take(1, 1)
        much.take(20, 1)
        assert lone.tick() == ["topic:much:messages"]


def test_with_very_many_limits_in_use_each_is_served_within_the_life_of_a_slice():
    lone, count = Lone(), 3 * LIMITS_A_TICK
    held = [lone.slices.meter(f"topic:{i}", 10, 0) for i in range(count)]
    served = []
    for _ in range(TICKS_A_ROUND):
        for meter in held:
            meter.take(1, 1)
        served.append(len(lone.tick()))
    assert max(served) <= LIMITS_A_TICK
    for _ in range(TICKS_A_ROUND):
        lone.tick()
        assert sum(each.room(lone.now)[0] > 0 for each in held) == count
    assert lone.slices.lent == count


class Generous:
    """Processes at a limit far above what they send: 100 messages per second each, of 5,000."""

    def __init__(self):
        self.now, self.lender = 1000.0, QuotaLender(1000.0 - SLICE_S)
        self.processes, self.refused, self.random = [], 0, random.Random(1)

    def join(self):
        slices = QuotaSlices("producer_proxy", f"p{len(self.processes)}", self.ask, lambda: self.now)
        self.processes.append((slices, self.now + self.random.random() * TICK_S))

    def ask(self, payload, answer):
        answer(0, json.dumps(lend(self.lender, payload, self.now)).encode())

    def run(self, seconds, limited=True):
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for i, (slices, due) in enumerate(self.processes):
                if self.now >= due:
                    self.processes[i] = slices, due + TICK_S
                    slices.tick()
                meter = slices.meter("topic:orders", 5000, 0) if limited else None
                if meter is None:
                    continue
                if meter.wait_s(1, 100, self.now):
                    self.refused += 1
                    meter.refuse(1, 100)
                else:
                    meter.take(1, 100)


def test_nothing_of_a_generous_limit_is_refused_while_processes_start_a_limit_is_set_or_the_lender_is_new():
    cluster = Generous()
    for _ in range(4):  # one by one, with traffic from the first moment on
        cluster.join()
        cluster.run(1.3)
    for _ in range(3):
        cluster.join()
    cluster.run(2)
    assert cluster.refused == 0
    cluster.lender = QuotaLender(cluster.now)
    cluster.run(3)
    assert cluster.refused == 0
    cluster.run(2 * IDLE_S, limited=False)
    cluster.run(3)
    assert cluster.refused == 0

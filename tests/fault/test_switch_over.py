"""Brokers of a group with replicas are killed, hung and switched under load: nothing is lost, and callers hardly notice.

Short form by default; PENSTOCK_SWITCHES=200 repeats the kills so many times.
"""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from common.cluster.opening import open_coordination
from common.contract import Durability
from tests.e2e.running import RunningPenstock
from tests.fault.load import Producers
from tests.fault.verdict import assert_nothing_lost_or_invented
from tests.waiting import until

SWITCHES = int(os.environ.get("PENSTOCK_SWITCHES", "5"))
GAPS_FILE = os.environ.get("PENSTOCK_GAPS", "")
ACKS_BETWEEN = 100
KILL_GAP_S, HANG_GAP_S = 1.5, 2.5


class Group:
    """A running group of two, and its record."""

    def __init__(self, penstock, coordination) -> None:
        self.penstock, self._coordination = penstock, coordination

    @property
    def record(self):
        return self._coordination.record("main").record

    def wait_in_sync(self):
        until(lambda: len(self.record.in_sync) == 2, "both brokers are in sync", 30)

    @property
    def slave(self):
        return next(name for name in self.record.in_sync if name != self.record.master)

    def wait_master_other_than(self, name):
        until(lambda: self.record.master != name, f"another broker than {name} is master", 10)


@pytest.fixture
def group(tmp_path):
    penstock = RunningPenstock(tmp_path / "data", "--replicas", "2").start()
    coordination = open_coordination(penstock.facts["config"])
    made = Group(penstock, coordination)
    yield made
    coordination.close()
    penstock.end()


@pytest.fixture
def shop(group):
    shop = group.penstock.application("shop", send=["*"], pull=["*"])
    group.penstock.run("topic", "create", "orders", "--queues", "4")
    return shop


@pytest.fixture
def producers(group, shop):
    made = Producers(lambda: group.penstock.producer, shop, "orders", durability=Durability.REPLICATED)
    yield made
    made.stop()


def gap_s(producers, since_s, until_s):
    """Longest time without an acknowledged message."""
    times = sorted(each for each in producers.acknowledged_at if since_s <= each <= until_s)
    return max((after - before for before, after in pairwise(times)), default=until_s - since_s)


def fault(group, producers, strike):
    """Under load: strike, wait until sends go on; returns the longest time without an acknowledged message."""
    group.wait_in_sync()
    producers.wait_more(ACKS_BETWEEN)
    since_s = time.monotonic() - 0.2
    strike()
    producers.wait_more(ACKS_BETWEEN)
    return gap_s(producers, since_s, time.monotonic())


def refused(producers):
    return [each for each in producers.sent if each.outcome != "ok"]


def test_a_killed_master_is_replaced_and_no_send_fails(group, shop, producers):
    producers.start().wait_more(1)
    gaps = []
    for _ in range(SWITCHES):
        master = group.record.master
        killed = []
        gaps.append(fault(group, producers, lambda name=master, into=killed: into.append(group.penstock.kill(name))))
        group.wait_master_other_than(master)
        group.penstock.wait_replaced(master, killed[0])
    producers.stop()
    print(f"{SWITCHES} kills, gaps in ms: {sorted(round(each * 1000) for each in gaps)}")
    if GAPS_FILE:
        Path(GAPS_FILE).write_text("".join(f"{each:.4f}\n" for each in gaps))
    assert_nothing_lost_or_invented(group.penstock, shop, "orders", producers.sent)
    assert refused(producers) == []
    assert max(gaps) < KILL_GAP_S


def test_a_hung_master_is_replaced_and_acknowledges_nothing_when_it_goes_on(group, shop, producers):
    producers.start().wait_more(1)
    for _ in range(max(1, SWITCHES // 5)):
        master = group.record.master
        pid = group.penstock.refresh()["pids"][master]
        try:
            gap = fault(group, producers, lambda pid=pid: os.kill(pid, signal.SIGSTOP))
        finally:
            os.kill(pid, signal.SIGCONT)
        group.wait_in_sync()
        print(f"gap {gap * 1000:.0f} ms")
        assert gap < HANG_GAP_S
    producers.stop()
    assert_nothing_lost_or_invented(group.penstock, shop, "orders", producers.sent)
    assert refused(producers) == []


@pytest.mark.parametrize("how, most_s", [(signal.SIGKILL, 1.0), (signal.SIGSTOP, 2.5)], ids=["killed", "hung"])
def test_a_lost_slave_stops_sends_for_a_moment_and_comes_back(group, shop, producers, how, most_s):
    producers.start().wait_more(1)
    group.wait_in_sync()
    pid = group.penstock.refresh()["pids"][group.slave]
    try:
        gap = fault(group, producers, lambda: os.kill(pid, how))
    finally:
        if how == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
    assert gap < most_s
    group.wait_in_sync()
    producers.stop()
    assert_nothing_lost_or_invented(group.penstock, shop, "orders", producers.sent)
    assert refused(producers) == []


def test_planned_switches_fail_no_send(group, shop, producers):
    producers.start().wait_more(1)
    gaps = []
    for _ in range(SWITCHES):
        group.wait_in_sync()
        master = group.record.master
        gaps.append(fault(group, producers, lambda: group.penstock.run("broker", "switch", "main")))
        group.wait_master_other_than(master)
    producers.stop()
    print(f"{SWITCHES} planned switches, gaps in ms: {sorted(round(each * 1000) for each in gaps)}")
    assert_nothing_lost_or_invented(group.penstock, shop, "orders", producers.sent)
    assert refused(producers) == []

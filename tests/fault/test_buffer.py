"""The fallback buffer under real faults: an engine that is killed, stopped or slow, a proxy that is killed while it buffers and drains.

Short form by default; PENSTOCK_OUTAGE_S=30 and PENSTOCK_BUFFER_KILLS=50 are the long ones.
"""

import os
import signal
import time
import urllib.request
from contextlib import contextmanager

import pytest

from common.contract import Code
from tests.e2e.running import RunningPenstock, is_alive
from tests.fault.paced import STORED, Paced, Told, compare, percentile
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

OUTAGE_S = float(os.environ.get("PENSTOCK_OUTAGE_S", "2"))
KILLS = int(os.environ.get("PENSTOCK_BUFFER_KILLS", "2"))
RATE = 1000
QUEUES = 4
DRAIN_S_MAX = 60.0
DRAIN_BATCH = 200


@pytest.fixture
def penstock(tmp_path):
    made = RunningPenstock(tmp_path / "data").start()
    yield made
    made.end()


@pytest.fixture
def shop(penstock):
    return penstock.application("shop", send=["*"], pull=["*"])


@pytest.fixture
def topic(penstock, shop):
    penstock.run("topic", "create", "orders", "--queues", str(QUEUES), "--durability", "fsync", "--buffer", "disk")
    with Sender(penstock.producer, shop) as sender:
        retry_until_served(lambda: sender.one("orders", b"warm:0:", key="warm").code == Code.OK, "the topic is known")
    return "orders"


def backlog(penstock) -> int:
    """Entries that wait at the proxy."""
    host, port = penstock.producer[0], penstock.refresh()["ops"]["producer_proxy"]
    text = urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10).read().decode()
    line = next(line for line in text.splitlines() if line.startswith("penstock_buffer_entries{"))
    return int(float(line.split()[-1]))


def wait_drained(penstock) -> float:
    began = time.monotonic()
    until(lambda: backlog(penstock) == 0, "the backlog is in the engine", DRAIN_S_MAX)
    return time.monotonic() - began


def stored(penstock, shop, topic) -> list:
    with Puller(penstock.consumer, shop) as puller:
        return puller.read_all("audit", topic, QUEUES)


@contextmanager
def engine_killed(penstock):
    supervisor = penstock.kill("up", signal.SIGSTOP)  # or it would start the engine again at once
    try:
        engine = penstock.kill("engine")
        until(lambda: not is_alive(engine), "the engine is gone")
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)
    penstock.wait_replaced("engine", engine)


@contextmanager
def engine_stopped(penstock):
    engine = penstock.kill("engine", signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine, signal.SIGCONT)


@contextmanager
def engine_slow(penstock):
    """Half a second of standstill, again and again."""
    engine = penstock.refresh()["pids"]["engine"]
    yield lambda: _stutter(engine)


def _stutter(engine: int) -> None:
    os.kill(engine, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(engine, signal.SIGCONT)
    time.sleep(0.05)


@pytest.mark.parametrize("outage", [engine_killed, engine_stopped])
def test_while_the_engine_is_away_no_send_fails_and_afterwards_nothing_is_lost_or_out_of_order(
    penstock, shop, topic, outage
):
    load = Paced(lambda: penstock.producer, shop, topic, RATE).start()
    time.sleep(1.0)
    with outage(penstock):
        time.sleep(OUTAGE_S)
        waiting = backlog(penstock)
    drained_s = wait_drained(penstock)
    time.sleep(0.5)
    told = load.stop()
    wait_drained(penstock)
    codes = {code: sum(each.code == code for each in told) for code in {each.code for each in told}}
    print(f"{len(told)} sends {codes}, backlog {waiting}, drained in {drained_s:.1f} s,"
          f" p99 {percentile((each.took_s for each in told), 0.99):.3f} s")  # fmt: skip
    assert set(codes) <= set(STORED) and codes[Code.BUFFERED] > RATE / 10
    found = compare(told, stored(penstock, shop, topic))
    assert found.broken == {}
    assert told[-1].code == Code.OK, "live traffic did not return to the engine"


def test_a_slow_engine_costs_no_send_though_callers_are_in_a_hurry(penstock, shop, topic):
    load = Paced(lambda: penstock.producer, shop, topic, 200, timeout_ms=250).start()
    with engine_slow(penstock) as stutter:
        for _ in range(5):
            stutter()
    told = load.stop()
    wait_drained(penstock)
    assert {each.code for each in told} == {Code.OK, Code.BUFFERED}
    assert compare(told, stored(penstock, shop, topic)).broken == {}


def test_a_proxy_killed_while_it_buffers_and_while_it_drains_loses_nothing_and_repeats_one_batch_at_most(
    penstock, shop, topic
):
    told: list[Told] = []
    for number in range(KILLS):
        with engine_killed(penstock):
            load = Paced(lambda: penstock.producer, shop, topic, 2000, 8, 2, name=f"{number}.").start()
            until(lambda load=load: sum(each.code == Code.BUFFERED for each in load.told) > 1000, "a backlog", 20)
            proxy = penstock.kill("producer_proxy")  # while it buffers
            until(lambda load=load: any(each.code == -1 for each in load.told), "the kill was felt")
            told += load.stop()
        penstock.wait_replaced("producer_proxy", proxy)
        left = backlog(penstock)
        until(lambda left=left: backlog(penstock) < left or left == 0, "the drain goes on", DRAIN_S_MAX)
        killed = penstock.kill("producer_proxy")  # while it drains, unless it was quicker than we are
        penstock.wait_replaced("producer_proxy", killed)
    wait_drained(penstock)
    found = compare(told, stored(penstock, shop, topic))
    print(f"{KILLS} rounds: {len(told)} sends, {found.copies} copies")
    assert found.broken == {}
    assert found.copies <= KILLS * (DRAIN_BATCH + 8)

"""The fallback buffer under real faults: an engine that is killed, stopped or slow, a proxy that is killed while it buffers and drains.

Short form by default; PENSTOCK_BUFFER_KILLS=50 is the long one. Long outages with their figures: `make outage`.
"""

import os
import signal
import subprocess
import time
from contextlib import nullcontext
from random import Random

import pytest

from common.contract import Code
from tests.e2e.running import PENSTOCK
from tests.fault.buffered import DRAIN_S_MAX, FILLERS, Growing, buffered, engine_killed, engine_stopped, stored, warm
from tests.fault.paced import STORED, Paced, compare, percentile
from tests.waiting import until

OUTAGE_S = float(os.environ.get("PENSTOCK_OUTAGE_S", "2"))
KILLS = int(os.environ.get("PENSTOCK_BUFFER_KILLS", "4"))
RATE = int(os.environ.get("PENSTOCK_BUFFER_RATE", "1000"))
DRAIN_BATCH = 200


def stutter(engine: int) -> None:
    """Half a second of standstill."""
    os.kill(engine, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(engine, signal.SIGCONT)
    time.sleep(0.05)


@pytest.mark.parametrize(
    ("prefix", "outage"),
    [
        ("disk.orders", engine_killed),
        pytest.param("disk.orders", engine_stopped, marks=pytest.mark.slow),
        pytest.param("redis.orders", engine_killed, marks=pytest.mark.slow),
        pytest.param("both.orders", engine_killed, marks=pytest.mark.slow),
    ],
)
def test_while_the_engine_is_away_no_send_fails_and_afterwards_nothing_is_lost_or_out_of_order(
    penstock, shop, proxies, prefix, outage
):
    topic, proxy = f"{prefix}.{outage.__name__}", proxies()
    warm(proxy, shop, topic)
    load = Paced(lambda: proxy.address, shop, topic, RATE).start()
    time.sleep(1.0)
    with outage(penstock):
        time.sleep(OUTAGE_S)
        waiting = proxy.backlog()
    began = time.monotonic()
    proxy.wait_drained(DRAIN_S_MAX)
    drained_s = time.monotonic() - began
    time.sleep(0.5)
    told = load.stop()
    proxy.wait_drained()
    codes = {code: sum(each.code == code for each in told) for code in {each.code for each in told}}
    print(f"{topic}: {len(told)} sends {codes}, backlog {waiting}, drained in {drained_s:.1f} s,"
          f" p99 {percentile((each.took_s for each in told), 0.99):.3f} s")  # fmt: skip
    assert set(codes) <= set(STORED) and codes[Code.BUFFERED] > RATE / 10
    assert compare(told, stored(penstock, shop, topic)).broken == {}
    assert told[-1].code == Code.OK, "live traffic did not return to the engine"


@pytest.mark.slow
def test_a_slow_engine_costs_no_send_though_callers_are_in_a_hurry(penstock, shop, proxies):
    topic, proxy = "disk.orders.slow", proxies()
    warm(proxy, shop, topic)
    load = Paced(lambda: proxy.address, shop, topic, 200, timeout_ms=250).start()
    for _ in range(3):
        stutter(penstock.refresh()["pids"]["engine"])
    told = load.stop()
    proxy.wait_drained()
    assert {each.code for each in told} == {Code.OK, Code.BUFFERED}
    assert compare(told, stored(penstock, shop, topic)).broken == {}


@pytest.mark.parametrize("prefix", ["disk.orders", pytest.param("redis.orders", marks=pytest.mark.slow)])
def test_a_proxy_killed_while_it_buffers_and_while_it_drains_loses_nothing_and_repeats_one_batch_at_most(
    penstock, shop, proxies, prefix
):
    topic, told, chance = f"{prefix}.kills", [], Random(KILLS)
    proxy, log = proxies("buffer", "--buffer-drain-per-s", "2000"), Growing(penstock, shop, topic)
    warm(proxy, shop, topic)
    buffering, draining = [], []  # copies that each kill cost
    for number in range(KILLS):
        told += buffered(penstock, shop, proxy, topic, f"{number}.")
        copies = log.read()
        proxy.start()
        until(lambda: proxy.metric("penstock_buffer_drained_total") > 0, "the drain has begun", DRAIN_S_MAX)
        with (
            engine_stopped(penstock) if number % 2 else nullcontext()
        ):  # stopped: a batch is in flight if anything is left
            time.sleep(0.15 if number % 2 else chance.random() * 0.1)
            proxy.kill()
        buffering.append(copies + log.read())
        proxy.start()
        proxy.wait_drained()
        draining.append(log.read())
    print(
        f"{topic}: {KILLS} kills while it buffered cost {buffering} copies, {KILLS} while it drained {draining}; {len(told)} sends"
    )
    found = compare(told, log.deliveries)
    assert found.broken == {} and found.copies == sum(buffering) + sum(draining)
    assert max(draining) <= DRAIN_BATCH and sum(count > 0 for count in draining) >= KILLS // 4
    assert max(buffering) <= DRAIN_BATCH + FILLERS  # and what the engine had of the senders' own when it stopped


@pytest.mark.slow
def test_another_proxy_drains_what_a_dead_one_left_in_redis(penstock, shop, proxies):
    topic, first, second = "redis.orders.left", proxies("one"), proxies("two")
    warm(first, shop, topic)
    told = buffered(penstock, shop, first, topic)
    until(
        lambda: compare(told, stored(penstock, shop, topic)).lost == [], "the other proxy has drained it", DRAIN_S_MAX
    )
    assert compare(told, stored(penstock, shop, topic)).broken == {}
    second.wait_drained()


def test_a_dead_proxys_disk_buffer_is_drained_by_hand(penstock, shop, proxies, tmp_path):
    topic, proxy = "disk.orders.by.hand", proxies()
    warm(proxy, shop, topic)
    line = [*PENSTOCK, "buffer", "drain", str(tmp_path / "buffer"), "--data", str(penstock.data)]
    refused = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (4, 1), refused.stderr
    told = buffered(penstock, shop, proxy, topic)
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "0 moved to the dead-letter list" in done.stdout, done.stderr
    assert compare(told, stored(penstock, shop, topic)).broken == {}

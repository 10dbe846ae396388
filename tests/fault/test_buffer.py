"""The fallback buffer under real faults: an engine that is killed, stopped or slow, a proxy that is killed while it buffers and drains.

Short form by default; PENSTOCK_OUTAGE_S=30 and PENSTOCK_BUFFER_KILLS=50 are the long ones.
"""

import os
import signal
import subprocess
import time
from contextlib import contextmanager, nullcontext
from random import Random

import pytest

from common.contract import Code, Position
from tests.e2e.running import PENSTOCK, RunningPenstock, is_alive
from tests.fault.own_proxy import OwnProxy
from tests.fault.paced import STORED, Paced, Told, compare, percentile
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.services.redis_server import RedisServer
from tests.waiting import until

OUTAGE_S = float(os.environ.get("PENSTOCK_OUTAGE_S", "2"))
KILLS = int(os.environ.get("PENSTOCK_BUFFER_KILLS", "4"))
RATE = int(os.environ.get("PENSTOCK_BUFFER_RATE", "1000"))
QUEUES = 4
DRAIN_S_MAX = 60.0
DRAIN_BATCH, FILLERS = 200, 8
TOPICS = {"disk.orders": "disk", "redis.orders": "redis", "both.orders": "redis+disk"}


@pytest.fixture(scope="module")
def penstock(tmp_path_factory):
    made = RunningPenstock(tmp_path_factory.mktemp("penstock") / "data").start()
    yield made
    made.end()


@pytest.fixture(scope="module")
def shop(penstock):
    who = penstock.application("shop", send=["*"], pull=["*"])
    for prefix, buffer in TOPICS.items():
        penstock.run(
            "topic",
            "create",
            f"{prefix}*",
            "--family",
            "--queues",
            str(QUEUES),
            "--durability",
            "fsync",
            "--buffer",
            buffer,
        )
    return who


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def proxies(penstock, tmp_path, redis_server):
    """Make proxies with both buffers: `proxies("disk directory's name", *options)`."""
    made = []

    def make(name="buffer", *options):
        more = ["--buffer", str(tmp_path / name), "--buffer-redis", redis_server.url, *options]
        made.append(OwnProxy(penstock, *more))
        return made[-1].start()

    yield make
    for each in made:
        each.kill()
    redis_server.client().flushall()


def warm(proxy, shop, topic) -> None:
    with Sender(proxy.address, shop) as sender:
        retry_until_served(lambda: sender.one(topic, b"warm:0:", key="warm").code == Code.OK, "the topic is known")


def stored(penstock, shop, topic) -> list:
    with Puller(penstock.consumer, shop) as puller:
        asked = [Position(topic, 0)]
        retry_until_served(lambda: puller.pull("audit", positions=asked).positions, "the engine can be read")
        return puller.read_all("audit", topic, QUEUES)


class Growing:
    """A topic's log, read on from time to time."""

    def __init__(self, penstock, shop, topic) -> None:
        self._penstock, self._shop, self._topic = penstock, shop, topic
        self._offsets, self._ids = [0] * QUEUES, set()
        self._found: list = []

    def read(self) -> int:
        """How many of the messages that came since are copies of one that was there."""
        with Puller(self._penstock.consumer, self._shop) as puller:
            asked = [Position(self._topic, 0)]
            retry_until_served(lambda: puller.pull("audit", positions=asked).positions, "the engine can be read")
            fresh = puller.read_on("audit", self._topic, self._offsets)
        known = len(self._ids)
        self._ids.update(each.id for each in fresh)
        self._found += fresh
        return len(fresh) - (len(self._ids) - known)

    @property
    def deliveries(self) -> list:
        """All of them, queue by queue in order."""
        return sorted(self._found, key=lambda each: (each.queue, each.offset))


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


def buffered(penstock, shop, proxy, topic, name: str = "") -> list[Told]:
    """Fill the proxy's buffer while the engine is away, and kill it by that. What was told."""
    with engine_stopped(penstock):
        load = Paced(lambda: proxy.address, shop, topic, 2000, FILLERS, 2, name=name).start()
        until(lambda: sum(each.code == Code.BUFFERED for each in load.told) > 800, "a backlog", 20)
        proxy.kill()
        return load.stop()


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
        log.read()
        proxy.start()
        until(lambda: proxy.metric("penstock_buffer_drained_total") > 0, "the drain has begun", DRAIN_S_MAX)
        with engine_stopped(penstock) if number % 2 else nullcontext():  # stopped: a batch is in flight for certain
            time.sleep(0.15 if number % 2 else chance.random() * 0.1)
            proxy.kill()
        buffering.append(log.read())
        proxy.start()
        proxy.wait_drained()
        draining.append(log.read())
    print(
        f"{topic}: {KILLS} kills while it buffered cost {buffering} copies, {KILLS} while it drained {draining}; {len(told)} sends"
    )
    found = compare(told, log.deliveries)
    assert found.broken == {} and found.copies == sum(buffering) + sum(draining)
    assert max(draining) <= DRAIN_BATCH and sum(count > 0 for count in draining) >= KILLS // 2
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
    assert done.returncode == 0 and "0 on the dead-letter list" in done.stdout, done.stderr
    assert compare(told, stored(penstock, shop, topic)).broken == {}


@pytest.mark.slow
def test_with_two_stores_a_redis_that_dies_meanwhile_costs_no_send(penstock, shop, proxies, redis_server):
    topic, proxy = "both.orders.dies", proxies()
    warm(proxy, shop, topic)
    with engine_stopped(penstock):
        load = Paced(lambda: proxy.address, shop, topic, 500).start()
        until(lambda: proxy.backlog() > 200, "a backlog in Redis", 20)
        redis_server.signal(signal.SIGSTOP)
        until(lambda: proxy.backlog() > 900, "a backlog on disk too", 20)
        redis_server.signal(signal.SIGCONT)
    proxy.wait_drained()
    told = load.stop()
    proxy.wait_drained()
    assert {each.code for each in told} <= set(STORED)
    assert compare(told, stored(penstock, shop, topic)).broken == {}


@pytest.mark.slow
def test_with_redis_at_maxmemory_the_backlog_still_drains(penstock, shop, proxies, redis_server):
    topic, proxy = "both.orders.full", proxies()
    warm(proxy, shop, topic)
    client = redis_server.client()
    with engine_stopped(penstock):
        load = Paced(lambda: proxy.address, shop, topic, 500).start()
        until(lambda: proxy.backlog() > 200, "a backlog in Redis", 20)
        client.config_set("maxmemory", 1_000_000)
        until(lambda: proxy.backlog() > 600, "a backlog on disk too", 20)
    proxy.wait_drained()
    told = load.stop()
    proxy.wait_drained()
    client.config_set("maxmemory", 0)
    assert {each.code for each in told} <= set(STORED)
    assert compare(told, stored(penstock, shop, topic)).broken == {}

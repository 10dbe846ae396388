"""A running Penstock, a Redis and proxies with both buffers, for the tests of the fallback buffer, with shared steps."""

import os
import signal
from contextlib import contextmanager

import pytest

from common.contract import Code, Position
from tests.e2e.running import Application, RunningPenstock, is_alive
from tests.fault.own_proxy import OwnProxy
from tests.fault.paced import Paced, Told
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.services.redis_server import RedisServer
from tests.waiting import until

QUEUES = 4
FILLERS = 8
DRAIN_S_MAX = 60.0
TOPICS = {"disk.orders": "disk", "redis.orders": "redis", "both.orders": "redis+disk"}


@pytest.fixture(scope="module")
def penstock(tmp_path_factory):
    made = RunningPenstock(tmp_path_factory.mktemp("penstock") / "data").start()
    yield made
    made.end()


@pytest.fixture(scope="module")
def shop(penstock):
    return made_shop(penstock)


def made_shop(penstock: RunningPenstock) -> Application:
    """Create an application with all grants, and a family of topics per kind of buffer."""
    for prefix, buffer in TOPICS.items():
        options = ["--queues", str(QUEUES), "--durability", "fsync", "--buffer", buffer]
        penstock.run("topic", "create", f"{prefix}*", "--family", *options)
    return penstock.application("shop", send=["*"], pull=["*"])


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
        """Count the new messages that are copies of an earlier one."""
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


def buffered(penstock, shop, proxy, topic, name: str = "") -> list[Told]:
    """Fill the proxy's buffer while the engine is away, kill the proxy, and return the answers."""
    with engine_stopped(penstock):
        load = Paced(lambda: proxy.address, shop, topic, 2000, FILLERS, 2, name=name).start()
        until(lambda: sum(each.code == Code.BUFFERED for each in load.told) > 800, "a backlog", 20)
        proxy.kill()
        return load.stop()

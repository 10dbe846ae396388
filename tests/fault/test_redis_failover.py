"""Fail-overs of Sentinel and Cluster under the Redis buffer: it serves again, what is there drains, and what Redis lost is reported."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.config.memory_store import MemoryConfigStore as MemoryConfig
from producer_proxy.buffer.errors import BufferError_
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.redis.client import WATCH_S, connect
from producer_proxy.buffer.redis.slots import PREFIX
from producer_proxy.buffer.redis.store import RedisStore
from producer_proxy.buffer.room import RoomLimits
from tests.services import require
from tests.services.fake_broker import wait_until
from tests.services.redis_server import RedisServer, free_port
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry, numbers

pytestmark = pytest.mark.slow
FAIL_OVER_S_MAX = 30


class Sentinel(RedisServer):
    """One Sentinel, with a quorum of itself."""

    def __init__(self, directory: Path, master: RedisServer) -> None:
        super().__init__(directory)
        self._arguments = ("--sentinel",)
        (directory / "redis.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {directory}\nsentinel monitor buffers 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds buffers 500\nsentinel failover-timeout buffers 3000\n"
        )


def opened(url: str) -> RedisStore:
    address = parse_address(url)
    return RedisStore(lambda: connect(address), address.layout, MemoryConfig(), RoomLimits(), lambda: NOW_MS)


def put_through(store: RedisStore, first: int, count: int) -> list[int]:
    """Put them one by one over any outage; those that were promised."""
    promised = []
    for number in range(first, first + count):
        deadline = time.monotonic() + FAIL_OVER_S_MAX
        while True:
            try:
                store.put([entry(number, f"t{number % 7}")])
                promised.append(number)
                break
            except BufferError_ as error:
                assert time.monotonic() < deadline, error
                wait_until(lambda: store.fault() is None, FAIL_OVER_S_MAX)
    return promised


def drain(store: RedisStore) -> list[int]:
    found = []
    while batch := numbers(store, count=50):
        found += batch
        store.remove(store.take((), 50, 1 << 30))
    return found


def judge(store: RedisStore, promised: list[int]) -> None:
    found = drain(store)
    lost = set(promised) - set(found)
    print(
        f"{len(promised)} promised, {len(lost)} lost by the fail-over, {store.damaged} reported, {len(found) - len(set(found))} copies"
    )
    assert len(lost) <= store.damaged
    for rest in range(7):
        mine = list(dict.fromkeys(number for number in found if number % 7 == rest))
        assert mine == sorted(mine)


@contextmanager
def watched_master(folder):
    """A master, its replica that has all, and a Sentinel that knows both."""
    with (
        RedisServer(folder / "a") as master,
        RedisServer(folder / "b", {"replicaof": f"127.0.0.1 {master.port}"}) as replica,
        Sentinel(folder / "s", master) as sentinel,
    ):
        wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up", 20)
        wait_until(lambda: sentinel.client().execute_command("SENTINEL", "REPLICAS", "buffers"), 20)
        yield master, replica, sentinel


@pytest.mark.parametrize("layout", ["streams", "lists"])
def test_a_sentinel_fail_over_is_lived_through(tmp_path, layout):
    with watched_master(tmp_path) as (master, _, sentinel):
        store = opened(f"sentinel://127.0.0.1:{sentinel.port}/buffers?layout={layout}")
        promised = put_through(store, 0, 300)
        master.stop()
        promised += put_through(store, 300, 300)
        judge(store, promised)
        store.close()


def buffered_at(server: RedisServer) -> int:
    """Entries in the streams of this server."""
    client = server.client()
    return sum(client.xlen(key) for key in client.scan_iter(match=f"{PREFIX}*", _type="stream"))


def test_a_master_that_sentinels_have_replaced_is_left_while_it_still_takes_writes(tmp_path):
    with watched_master(tmp_path) as (master, replica, sentinel):
        store = opened(f"sentinel://127.0.0.1:{sentinel.port}/buffers")
        promised = put_through(store, 0, 50)
        wait_until(lambda: buffered_at(replica) == 50, 20)
        sentinel.client().execute_command("SENTINEL", "FAILOVER", "buffers")
        wait_until(lambda: sentinel.client().sentinel_get_master_addr_by_name("buffers")[1] == replica.port, 20)
        deadline = time.monotonic() + 8 * WATCH_S
        while buffered_at(replica) == 50 and time.monotonic() < deadline:
            promised += put_through(store, len(promised), 1)
        assert master.client().info("replication")["role"] == "master", "nothing but the Sentinels tells that it is old"
        assert buffered_at(replica) > 50
        judge(store, promised)
        store.close()


@contextmanager
def cluster(folder: Path, count: int, replicas: int) -> Iterator[list[RedisServer]]:
    require(shutil.which("redis-cli"), "redis-cli: apt install redis-tools")
    settings = {"cluster-enabled": "yes", "cluster-node-timeout": "1000", "cluster-replica-validity-factor": "0"}
    nodes: list[RedisServer] = []
    try:
        for number in range(count):
            nodes.append(RedisServer(folder / f"n{number}", {**settings, "cluster-port": str(free_port())}).start())
        places = [place(node) for node in nodes]
        cluster_tool("create", *places, "--cluster-replicas", str(replicas))
        wait_until(lambda: all(b"cluster_state:ok" in _info(node) for node in nodes), 30)
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def place(node: RedisServer) -> str:
    return f"127.0.0.1:{node.port}"


def cluster_tool(*arguments: str) -> None:
    subprocess.run(
        ["redis-cli", "--cluster", *arguments, "--cluster-yes"], check=True, capture_output=True, timeout=60
    )  # fmt: skip


def test_a_cluster_fail_over_is_lived_through(tmp_path):
    with cluster(tmp_path, 6, 1) as nodes:
        wait_until(lambda: all(_replicates(node) for node in nodes), 30)
        store = opened(f"cluster://{place(nodes[0])},{place(nodes[1])}")
        promised = put_through(store, 0, 300)
        next(node for node in nodes if node.client().info("replication")["role"] == "master").stop()
        promised += put_through(store, 300, 300)
        wait_until(lambda: store.fault() is None, FAIL_OVER_S_MAX)
        judge(store, promised)
        store.close()


def test_slots_of_a_cluster_that_move_to_another_node_lose_and_double_nothing(tmp_path):
    with cluster(tmp_path, 3, 0) as nodes:
        store = opened(f"cluster://{place(nodes[0])},{place(nodes[1])}")
        promised = put_through(store, 0, 100)
        ids = [node.client().execute_command("CLUSTER", "MYID").decode() for node in nodes]
        for source in ids[1:]:  # all to the first: each key moves that is elsewhere
            cluster_tool(
                "reshard", place(nodes[0]), "--cluster-from", source, "--cluster-to", ids[0], "--cluster-slots", "5500"
            )  # fmt: skip
        promised += put_through(store, 100, 100)
        wait_until(lambda: store.fault() is None, FAIL_OVER_S_MAX)
        found = drain(store)
        assert sorted(found) == promised and store.damaged == 0
        store.close()


def _replicates(node: RedisServer) -> bool:
    """A master with a replica that follows, or such a replica."""
    about = node.client().info("replication")
    if about["role"] == "master":
        return about["connected_slaves"] > 0 and about["slave0"]["state"] == "online"
    return about["master_link_status"] == "up"


def _info(node: RedisServer) -> bytes:
    raw = node.client().execute_command("CLUSTER", "INFO")
    return "\n".join(f"{name}:{value}" for name, value in raw.items()).encode() if isinstance(raw, dict) else raw

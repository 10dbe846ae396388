"""Further faults while the engine is away: the Redis of the buffer in every bad state, its disk, and proxies that should not start."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from common.contract import Code
from tests.e2e.running import RunningPenstock
from tests.fault.buffered import buffered, engine_stopped, made_shop, stored, warm
from tests.fault.own_proxy import OwnProxy
from tests.fault.paced import STORED, Paced, compare
from tests.fault.stock_clients import Sender
from tests.services import require
from tests.services.redis_server import RedisServer, free_port
from tests.waiting import until

MIB = 1 << 20
ENGINE_MIB = 2000


def on_tmpfs(folder, mib: int) -> list[str]:
    """A wrapper: the command sees a file system of this size there, which ends with it."""
    require(os.geteuid() == 0 and shutil.which("unshare"), "a small file system needs root and unshare")
    script = f'mkdir -p "$0" && mount -t tmpfs -o size={mib}m tmpfs "$0" && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(folder)]


class Faults:
    """What is done to a Redis, and how it is undone."""

    def __init__(self, server: RedisServer) -> None:
        self._server, self._client = server, server.client()
        self._keys = [f"penstock:buffer:{{{slot}.{part}}}" for slot in range(3) for part in range(4)]

    def begin(self, name: str) -> None:
        getattr(self, name.replace(" ", "_"))()

    def end(self) -> None:
        """Whatever it was; Redis has again what it held."""
        self._server.signal(signal.SIGCONT)
        until(self._answers, "Redis answers", 10)
        self._client.config_set("maxmemory", 0)
        self._client.config_set("appendfsync", "always")
        self._client.replicaof("NO", "ONE")
        for key in self._keys:
            if self._client.type(key) == b"string":
                self._client.delete(key)

    def _answers(self) -> bool:
        try:
            return self._client.ping()
        except redis.ConnectionError:
            self._server.start()
            return False

    def killed(self) -> None:
        self._server.stop()

    def stopped(self) -> None:
        self._server.signal(signal.SIGSTOP)

    def paused(self) -> None:
        self._client.execute_command("CLIENT", "PAUSE", "2500")

    def at_maxmemory(self) -> None:
        self._client.config_set("maxmemory", 1_000_000)

    def a_read_only_replica(self) -> None:
        self._client.replicaof("127.0.0.1", str(free_port()))

    def synced_every_second(self) -> None:
        self._client.config_set("appendfsync", "everysec")

    def of_another_type(self) -> None:
        for key in self._keys:
            self._client.set(key, "somebody's")


@pytest.mark.parametrize("permissions", ["-xdel", "-xdel -xadd -rpush"], ids=["deletes", "writes"])
def test_a_redis_that_refuses_deletions_costs_no_copies_and_no_live_send(
    penstock, shop, proxies, redis_server, permissions
):
    """As after a failed snapshot: reads go on. The engine is back long before Redis deletes again."""
    topic, proxy, client = f"redis.orders.refused.{len(permissions)}", proxies(), redis_server.client()
    warm(proxy, shop, topic)
    with Sender(proxy.address, shop) as sender, engine_stopped(penstock):
        told = [sender.one(topic, b"warm:%d:" % n, key=f"k{n % 30}").code for n in range(1, 301)]
        client.execute_command("ACL", "SETUSER", "default", *permissions.split())
    assert set(told) == {Code.BUFFERED}
    try:
        proxy.wait_drained()
        until(lambda: "refuses to delete" in proxy.readiness(), "/readyz says why", 10)
        assert proxy.metric("penstock_buffer_undeleted") == 300
        with Sender(proxy.address, shop) as sender:
            live = [sender.one(topic, b"warm:%d:" % n, key=f"k{n % 30}").code for n in range(301, 331)]
        assert set(live) == {Code.OK}
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+@all")
    until(lambda: proxy.metric("penstock_buffer_undeleted") == 0, "Redis deletes again", 10)
    found = stored(penstock, shop, topic)
    assert len({each.id for each in found}) == 331 and len(found) <= 331 + 30  # of the first timeouts


@pytest.mark.parametrize(
    "fault",
    [
        "killed",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("stopped", "paused", "at maxmemory", "a read only replica", "synced every second")
        ),
    ],
)
def test_with_two_stores_whatever_happens_to_redis_costs_no_send(penstock, shop, proxies, redis_server, fault):
    topic, proxy, faults = f"both.orders.{fault.replace(' ', '.')}", proxies(), Faults(redis_server)
    warm(proxy, shop, topic)
    with engine_stopped(penstock):
        load = Paced(lambda: proxy.address, shop, topic, 500).start()
        until(lambda: proxy.backlog() > 200, "a backlog in Redis", 20)
        faults.begin(fault)
        until(lambda: proxy.backlog() > 900, "a backlog on disk too", 20)
        if fault != "at maxmemory":  # there it drains all the same
            faults.end()
    proxy.wait_drained()
    faults.end()
    told = load.stop()
    proxy.wait_drained()
    assert {each.code for each in told} <= set(STORED)
    assert compare(told, stored(penstock, shop, topic)).broken == {}


@pytest.mark.slow
def test_keys_of_another_type_send_everything_to_the_disk(penstock, shop, proxies, redis_server):
    topic, faults = "both.orders.type", Faults(redis_server)
    faults.of_another_type()
    proxy = proxies()
    warm(proxy, shop, topic)
    told = buffered(penstock, shop, proxy, topic)
    assert {each.code for each in told if each.code >= 0} <= set(STORED)
    proxy.start()
    proxy.wait_drained()
    assert compare(told, stored(penstock, shop, topic)).broken == {}
    faults.end()


def test_a_flushall_is_reported_and_frees_the_keys(penstock, shop, proxies, redis_server):
    topic, proxy = "redis.orders.flushed", proxies()
    warm(proxy, shop, topic)
    with engine_stopped(penstock):
        load = Paced(lambda: proxy.address, shop, topic, 500).start()
        until(lambda: proxy.backlog() > 600, "a backlog in Redis", 20)
        redis_server.client().flushall()
        until(lambda: proxy.metric("penstock_buffer_damaged_total") > 100, "the loss is reported", 10)
    proxy.wait_drained()
    told = load.stop()
    proxy.wait_drained()
    found = compare(told, stored(penstock, shop, topic))
    assert 100 < len(found.lost) <= proxy.metric("penstock_buffer_damaged_total")
    assert "answered BUFFERED are gone" in proxy.told()
    assert not found.other_ids and not found.swapped
    assert told[-1].code == Code.OK


def test_a_proxy_does_not_start_on_a_redis_that_may_lose_messages_nor_on_anothers_directory(
    penstock, shop, proxies, redis_server, tmp_path
):
    proxies("taken")
    assert "another process holds it" in OwnProxy(penstock, "--buffer", str(tmp_path / "taken")).refused()
    redis_server.client().config_set("appendfsync", "everysec")
    try:
        said = OwnProxy(penstock, "--buffer-redis", redis_server.url).refused()
        assert "appendfsync is everysec" in said and "--buffer-redis-accept everysec" in said
        allowed = OwnProxy(penstock, "--buffer-redis", redis_server.url, "--buffer-redis-accept", "everysec")
        with allowed:
            assert allowed.metric("penstock_buffer_weak") == 1
    finally:
        redis_server.client().config_set("appendfsync", "always")


def test_a_buffer_whose_disk_is_full_refuses_loses_nothing_and_is_used_again(penstock, shop, tmp_path):
    topic, folder = "disk.orders.full", tmp_path / "small"
    with OwnProxy(penstock, "--buffer", str(folder), wrapper=on_tmpfs(folder, 1)) as proxy:
        warm(proxy, shop, topic)
        with engine_stopped(penstock):
            load = Paced(lambda: proxy.address, shop, topic, 3000).start()
            until(lambda: proxy.metric("penstock_buffer_refused_total") > 50, "the disk is full", 30)
            assert "No space left on device" in proxy.readiness()
            with Sender(proxy.address, shop) as sender:
                refused = sender.one(topic, b"large:0:".ljust(16_384, b"."), key="large")
            assert (refused.code, "the fallback buffer is full" in refused.error) == (Code.UNAVAILABLE, True)
            assert proxy.metric("penstock_buffer_working") == 0
        proxy.wait_drained()
        told = load.stop()
        proxy.wait_drained()
        codes = [each.code for each in told]
        assert set(codes) <= {*STORED, Code.UNAVAILABLE, Code.TIMEOUT} and codes.count(Code.BUFFERED) > 1000
        assert compare(told, stored(penstock, shop, topic)).broken == {}
        assert told[-1].code == Code.OK


@pytest.mark.slow
def test_a_flipped_bit_and_a_torn_tail_in_a_dead_proxys_buffer_cost_one_entry_and_are_reported(
    penstock, shop, proxies, tmp_path
):
    topic, proxy = "disk.orders.damaged", proxies()
    warm(proxy, shop, topic)
    told = buffered(penstock, shop, proxy, topic)
    segment = max((tmp_path / "buffer").glob("*.buf"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0x10
    segment.write_bytes(data + b"\x07" * 11)
    proxy.start()
    proxy.wait_drained()
    assert proxy.metric("penstock_buffer_damaged_total") == 1
    assert "bytes are damaged" in proxy.told() and "is torn" in proxy.told()
    found = compare(told, stored(penstock, shop, topic))
    assert len(found.lost) <= 1 and not found.other_ids and not found.swapped


@pytest.mark.slow
def test_an_engine_whose_disk_is_full_costs_no_send(tmp_path):
    folder = tmp_path / "data" / "engine"
    penstock = RunningPenstock(tmp_path / "data", wrapper=on_tmpfs(folder, ENGINE_MIB)).start()
    try:
        shop, topic = made_shop(penstock), "disk.orders.room"
        with OwnProxy(penstock, "--buffer", str(tmp_path / "buffer")) as proxy:
            warm(proxy, shop, topic)
            load = Paced(lambda: proxy.address, shop, topic, 500).start()
            filler = Path(f"/proc/{penstock.pids['engine']}/root{folder}/filler")
            with filler.open("wb") as file, suppress(OSError):
                while file.write(bytes(MIB)):
                    pass
            until(lambda: proxy.backlog() > 500, "a backlog", 30)
            filler.unlink()
            proxy.wait_drained()
            told = load.stop()
            proxy.wait_drained()
        assert {each.code for each in told} == {Code.OK, Code.BUFFERED}
        assert compare(told, stored(penstock, shop, topic)).broken == {}
    finally:
        penstock.end()

"""A proxy with both buffers whose backlog in Redis another proxy drains: its disk waits for that, so no key's order is lost."""

import signal

import pytest

import producer_proxy.buffer.redis.slots as slots_module
from common.config.memory_store import MemoryConfigStore as MemoryConfig
from common.contract import Code
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.fallback import FallbackBuffer
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.redis.backlog_note import BacklogNote
from producer_proxy.buffer.redis.client import connect
from producer_proxy.buffer.redis.layouts import LAYOUTS
from producer_proxy.buffer.redis.slots import part_of
from producer_proxy.buffer.redis.store import RedisStore
from producer_proxy.buffer.room import RoomLimits
from tests.fault.buffered import engine_stopped, stored, warm
from tests.fault.paced import STORED, Paced, compare
from tests.fault.test_redis_store import drain
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry, numbers
from tests.waiting import until

ELSEWHERE = next(topic for topic in (f"t{number}" for number in range(20)) if part_of(topic) != part_of("orders"))


class Proxy:
    """Both stores of one proxy and their switch."""

    is_stopped = False

    def __init__(self, server, layout, config, folder):
        address = parse_address(f"{server.url}?layout={layout}")
        self.config, self.note = config, folder / "redis-backlog"
        self.disk = DiskStore(folder, RoomLimits(), lambda: NOW_MS)
        self.redis = RedisStore(
            lambda: connect(address), layout, config, RoomLimits(), lambda: NOW_MS, note=BacklogNote(self.note)
        )
        stores = {"redis": self.redis, "disk": self.disk}
        self.buffer = FallbackBuffer(stores, {"orders": "redis+disk", ELSEWHERE: "redis+disk"}.get)

    def drainable(self) -> list[int]:
        """Numbers of the entries on the disk that do not wait for Redis."""
        return numbers(self.disk, self.buffer.held_by_others(self.disk))

    def stop(self):
        if not self.is_stopped:
            self.is_stopped = True
            self.redis.close()
            self.disk.close()


@pytest.fixture(params=tuple(LAYOUTS))
def start(request, redis_server, tmp_path):
    """Start the stores of a proxy: `start(name, config)`; a stopped one's again by the same name."""
    made = {}

    def make(name, config):
        made[name] = Proxy(redis_server, request.param, config, tmp_path / name)
        return made[name]

    yield make
    for each in made.values():
        each.stop()
    redis_server.client().flushall()


def left_and_adopted(start):
    """(another proxy, which has adopted the slot of the first one; the first one, started again)."""
    config = MemoryConfig()
    first, other = start("first", config), start("other", config.peer())
    assert first.buffer.put([entry(n) for n in range(10)]) == [None] * 10 and first.redis.room.entries == 10
    first.stop()
    other.redis._check()
    assert other.redis._slots.adopted == {0}
    return other, start("first", config.peer())


def test_what_comes_after_a_restart_waits_on_the_disk_for_the_part_that_another_proxy_drains(start):
    other, again = left_and_adopted(start)
    assert again.buffer.has_backlog("orders") and again.buffer.holds("orders", b"k")
    assert not again.buffer.has_backlog(ELSEWHERE)
    told = []
    again.buffer._on_topic = lambda *each: told.append(each)
    assert again.buffer.put([entry(10), entry(11, ELSEWHERE)]) == [None] * 2
    assert numbers(again.disk) == [10] and numbers(again.redis) == [11]
    assert again.drainable() == []
    other.redis.remove(other.redis.take((), 9, 1 << 20))
    again.redis._check()
    assert again.drainable() == []
    assert drain(other.redis) == [9]
    again.redis._check()
    assert again.drainable() == [10] and told[-1] == ("orders", True)
    assert drain(again.redis) == [11] and drain(again.disk) == [10]
    again.redis._check()
    assert not again.buffer.has_backlog("orders") and told[-1] == ("orders", False) and not again.note.exists()


def test_a_second_restart_still_knows_of_the_slot_that_another_proxy_drains(start):
    other, again = left_and_adopted(start)
    assert again.buffer.put([entry(11, ELSEWHERE), entry(10)]) == [None] * 2
    again.stop()
    third = start("first", again.config.peer())
    assert third.drainable() == [] and third.buffer.holds("orders", b"k")
    assert numbers(other.redis) == [*range(10)]


def test_what_another_proxy_buffers_in_that_slot_later_is_not_waited_for(start):
    other, again = left_and_adopted(start)
    assert again.buffer.put([entry(11, ELSEWHERE)]) == [None]
    assert drain(other.redis) == [*range(10)]
    again.redis._check()
    other.redis._slots.shards(0)[part_of("orders")].push(pipe := other.redis._client.pipeline(), [b"later"])
    pipe.execute()
    again.redis._check()
    assert not again.buffer.has_backlog("orders")


def test_a_slot_that_the_dead_process_still_claims_is_waited_for_and_then_drained_here(start):
    """Its session lives on for some seconds."""
    config = MemoryConfig()
    first = start("first", config)
    first.buffer.put([entry(n) for n in range(10)])
    claims = dict(config._shared.claims)
    first.stop()
    config._shared.claims = claims
    again = start("first", config.peer())
    assert again.redis._slots.own == 1 and again.redis._slots.adopted == set()
    again.buffer.put([entry(10)])
    assert again.drainable() == [] and numbers(again.redis) == []
    config.close()
    again.redis._check()
    assert again.drainable() == [] and drain(again.redis) == [*range(10)] and again.drainable() == [10]


def test_a_slot_whose_claim_is_lost_is_waited_for_by_what_this_proxy_takes_meanwhile(start):
    config = MemoryConfig()
    first, other = start("first", config), start("other", config.peer())
    first.buffer.put([entry(n) for n in range(10)])
    config.release(first.redis._slots._claim(0))
    first.buffer.put([entry(10)])
    other.redis._check()
    diverted = []
    first.redis.ordering_keys.watch(lambda topic, _: diverted.append(first.buffer.has_backlog(topic)))
    first.redis._check()
    assert first.redis._slots.own == 2 and diverted == [True]
    first.buffer.put([entry(11)])
    assert first.drainable() == [] and drain(other.redis) == [*range(10)]
    first.redis._check()
    assert first.drainable() == [10, 11]


def test_a_proxy_that_finds_no_free_slot_waits_no_longer_than_for_its_part(start, monkeypatch):
    other, again = left_and_adopted(start)
    again.stop()
    monkeypatch.setattr(slots_module, "SLOTS", 2)
    third = start("first", again.config.peer())
    assert "all 2 slots are claimed" in third.redis.fault()
    assert third.buffer.put([entry(10)]) == [None] and third.drainable() == []
    assert drain(other.redis) == [*range(10)]
    third.redis._check()
    assert third.drainable() == [10] and "all 2 slots are claimed" in third.redis.fault()
    other.stop()
    third.redis._check()
    assert third.redis.fault() is None


def test_a_note_of_another_redis_is_not_waited_for(start, redis_server):
    other, again = left_and_adopted(start)
    again.stop()
    redis_server.client().set("penstock:buffer:id", "another")
    assert not start("first", again.config.peer()).buffer.has_backlog("orders")
    assert numbers(other.redis) == [*range(10)]


def test_a_note_of_an_earlier_version_names_no_slot(start, redis_server):
    other, again = left_and_adopted(start)
    again.stop()
    again.note.write_bytes(redis_server.client().get("penstock:buffer:id"))
    third = start("first", again.config.peer())
    assert not third.buffer.has_backlog("orders") and third.redis.damaged == 0
    assert numbers(other.redis) == [*range(10)]


def test_the_restart_of_one_of_two_proxies_on_one_redis_breaks_no_order(penstock, shop, proxies, redis_server):
    """Redis stops for a moment, so the first proxy has a part of each key in Redis and the rest on its disk."""
    topic, slow = "both.orders.two", ("--buffer-drain-per-s", "200")
    first, second = proxies("first"), proxies("second", *slow)
    warm(first, shop, topic)
    with engine_stopped(penstock):
        load = Paced(lambda: first.address, shop, topic, 500).start()
        until(lambda: first.backlog() > 600, "a backlog in Redis", 20)
        redis_server.signal(signal.SIGSTOP)
        until(lambda: first.metric('penstock_buffer_entries{store="disk"}') > 100, "a backlog on the disk", 20)
        redis_server.signal(signal.SIGCONT)
        seen = len(load.told)
        until(lambda: len(load.told) > seen + 200, "more messages", 20)
        told = load.stop()
        first.kill()
        until(lambda: second.backlog() > 500, "the second proxy adopts the slot", 20)
        first.start()
        assert first.backlog() > 100
    first.wait_drained()
    second.wait_drained()
    assert {each.code for each in told} <= set(STORED)
    assert compare(told, stored(penstock, shop, topic)).broken == {}
    assert Code.BUFFERED in {each.code for each in told}

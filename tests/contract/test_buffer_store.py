"""What every store of the fallback buffer does: in memory, on disk, and in both layouts on a real Redis."""

import pytest

from common.config.memory_store import MemoryConfigStore as MemoryConfig
from producer_proxy.buffer.disk.store import DiskStore
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferFull
from producer_proxy.buffer.memory_store import BufferMemoryStore
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.redis.client import connect
from producer_proxy.buffer.redis.store import RedisStore
from producer_proxy.buffer.room import RoomLimits
from tests.services.redis_server import RedisServer
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry, numbers

LIMITS = RoomLimits(bytes_max=1 << 20, age_ms_max=60_000, topic_percent_max=50)


class NodeClock:
    at_ms = NOW_MS


@pytest.fixture
def clock():
    return NodeClock()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


def redis_store(server, layout, now_ms):
    server.client().flushall()
    address = parse_address(f"{server.url}?layout={layout}")
    return RedisStore(lambda: connect(address), layout, MemoryConfig(), LIMITS, now_ms)


@pytest.fixture(params=["memory", "disk", "streams", "lists"])
def store(request, tmp_path, clock):
    def now_ms():
        return clock.at_ms

    if request.param == "memory":
        made = BufferMemoryStore(LIMITS, now_ms)
    elif request.param == "disk":
        made = DiskStore(tmp_path / "buffer", LIMITS, now_ms, 4096)
    else:
        made = redis_store(request.getfixturevalue("redis_server"), request.param, now_ms)
    yield made
    made.close()


def test_entries_come_back_whole_in_the_order_in_which_they_were_put_and_stay_until_they_are_removed(store):
    odd = BufferEntry("orders", None, None, bytes(range(256)) * 20, NOW_MS)
    store.put([entry(1), entry(2, "pay")])
    store.put([odd])
    store.put([entry(3)])
    for _ in range(2):
        found = [kept.entry for kept in store.take((), 10, 1 << 20)]
        found += [kept.entry for kept in store.take({"orders"}, 10, 1 << 20) if kept.entry not in found]
        assert [each for each in found if each.topic == "orders"] == [entry(1), odd, entry(3)]
        assert [each for each in found if each.topic == "pay"] == [entry(2, "pay")]
    assert store.filled.is_set()


def test_what_is_removed_does_not_come_again_and_what_is_behind_it_does(store):
    store.put([entry(n) for n in range(1, 9)])
    store.remove(store.take((), 3, 1 << 20))
    assert numbers(store) == [4, 5, 6, 7, 8]
    kept = store.take((), 10, 1 << 20)
    store.remove([kept[1], kept[3]])
    assert numbers(store) == [4, 6, 8]
    store.remove(store.take((), 10, 1 << 20))
    assert numbers(store) == [] and store.stats().entries == store.stats().bytes == 0


def test_a_topic_that_is_skipped_does_not_hold_up_the_others(store):
    store.put([entry(1, "stuck"), entry(2), entry(3, "stuck"), entry(4)])
    assert numbers(store, {"stuck"}) == [2, 4]
    store.remove(store.take({"stuck"}, 10, 1 << 20))
    assert numbers(store) == [1, 3]


def test_a_topic_that_is_held_for_long_does_not_hold_up_those_of_its_shard(store):
    if not isinstance(store, RedisStore) or store._slots._make("x").passes_over is False:
        pytest.skip("one sequence per topic, or one that is deleted from its head only")
    shards = [(topic, store._slots.shard_of(topic).key) for topic in (f"t{number}" for number in range(20))]
    held, other = [topic for topic, key in shards if key == shards[0][1]][:2]
    store.put([entry(number, held) for number in range(700)])
    store.put([entry(number, other) for number in range(700, 705)])
    assert numbers(store, {held}) == [700, 701, 702, 703, 704]
    store.remove(store.take({held}, 3, 1 << 20))
    assert numbers(store, {held}) == [703, 704] and len(numbers(store)) == 702
    store.put([entry(800, held)])
    assert store.stats().entries == 703 and store.damaged == 0


def test_a_batch_is_bounded_by_count_and_bytes_but_has_one_entry_at_least(store):
    store.put([entry(n, size=1000) for n in range(1, 6)])
    assert numbers(store, count=2) == [1, 2]
    assert numbers(store, size=2500) == [1, 2]
    assert numbers(store, size=1) == [1]


def test_a_key_is_diverted_from_before_its_first_entry_until_its_last_is_removed(store):
    told = []
    store.ordering_keys.watch(lambda topic, diverted: told.append((topic, diverted)))
    store.put([entry(1, key=b"a"), entry(2, key=b"a"), entry(3, key=None)])
    assert store.ordering_keys.holds("orders", b"a") and store.ordering_keys.holds("orders", None)
    assert not store.ordering_keys.holds("orders", b"b") and not store.ordering_keys.holds("pay", b"a")
    store.remove(store.take((), 1, 1 << 20))
    assert store.ordering_keys.holds("orders", b"a")
    store.remove(store.take((), 1, 1 << 20))
    assert not store.ordering_keys.holds("orders", b"a")
    assert told == [("orders", True)]
    store.remove(store.take((), 1, 1 << 20))
    assert told == [("orders", True), ("orders", False)]


@pytest.mark.parametrize("topics", [["orders"], [f"t{n % 10}" for n in range(10)]], ids=["one topic's share", "bytes"])
def test_a_full_store_refuses_and_keeps_all_that_it_has(store, topics):
    taken = 0
    with pytest.raises(BufferFull):
        for taken in range(3000):
            store.put([entry(taken, topics[taken % len(topics)], size=8000)])
    room = LIMITS.bytes_max // (2 if len(topics) == 1 else 1)
    assert room - 9000 < store.stats().bytes <= room
    assert store.stats().entries == taken
    assert not store.ordering_keys.holds("orders", b"never put")
    assert ("has filled its share" if len(topics) == 1 else "full at") in store.stats().refusal
    assert store.fault() is None
    store.remove(store.take((), 10, 1 << 20))
    assert store.stats().refusal is None
    store.put([entry(5, size=8000)])


def test_a_topic_that_has_filled_its_share_is_told_while_others_are_stored(store):
    with pytest.raises(BufferFull):
        for number in range(1000):
            store.put([entry(number, size=8000)])
    store.put([entry(1000, "pay")])
    assert "topic=orders has filled its share" in store.refusal()


def test_a_call_that_does_not_fit_as_a_whole_leaves_nothing_behind(store):
    with pytest.raises(BufferFull):
        store.put([entry(n, key=b"new", size=300_000) for n in range(3)])
    assert numbers(store) == [] and not store.ordering_keys.holds("orders", b"new")
    assert store.refusal() is None, "whatever is done, there will be no more room"


def test_a_store_whose_oldest_entry_is_too_old_takes_nothing_more_and_still_gives(store, clock):
    store.put([entry(1)])
    clock.at_ms += LIMITS.age_ms_max + 2
    assert "older than 60 s" in store.refusal()
    with pytest.raises(BufferFull, match="older than 60 s"):
        store.put([entry(2)])
    store.remove(store.take((), 1, 1 << 20))
    assert store.refusal() is None
    store.put([entry(3)])
    assert numbers(store) == [3]


def test_a_clock_that_is_stepped_changes_no_order_and_refuses_only_until_the_old_entries_are_drained(store, clock):
    def put(number: int) -> None:
        store.put([entry(number)._replace(accepted_at_ms=clock.at_ms)])

    put(1)
    clock.at_ms -= 3_600_000
    put(2)
    put(3)
    assert numbers(store) == [1, 2, 3]
    clock.at_ms += 7_200_000
    with pytest.raises(BufferFull, match="older than"):
        put(4)
    store.remove(store.take((), 10, 1 << 20))
    put(4)
    assert numbers(store) == [4]


def test_what_is_buried_is_counted_and_gone_from_the_queue(store):
    store.put([entry(1), entry(2)])
    store.dead_letter(store.take((), 1, 1 << 20), "the engine refused it with code 101")
    assert numbers(store) == [2]
    assert store.stats().dead == 1

"""A Redis whose client fails in any way: every put gets an answer, and the proxy starts."""

import gevent
import pytest
from redis.exceptions import OutOfMemoryError, RedisClusterException

from common.config.memory_store import MemoryConfigStore
from producer_proxy.buffer.errors import BufferError_, BufferFull, BufferUncertain
from producer_proxy.buffer.fallback import FallbackBuffer
from producer_proxy.buffer.memory_store import BufferMemoryStore
from producer_proxy.buffer.ordering_keys import OrderingKeys
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.redis.backlog_note import NO_NOTE, BacklogNote
from producer_proxy.buffer.redis.client import connect
from producer_proxy.buffer.redis.slots import shard_key
from producer_proxy.buffer.redis.store import RedisStore
from producer_proxy.buffer.room import Room, RoomLimits
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry

AWAY = RedisClusterException("Redis Cluster cannot be connected. Please provide at least one reachable node")


class Pipe:
    """Commands of one shard after the other, as the layout of lists queues them."""

    def __init__(self, client):
        self._client, self._keys = client, []

    def rpush(self, key, *values):
        self._keys.append(key)

    def llen(self, key):
        self._keys.append(None)

    def execute(self, raise_on_error=True):
        if self._client.error:
            raise self._client.error
        return [OutOfMemoryError("full") if key in self._client.full else bool(key) for key in self._keys]


class Client:
    error: Exception | None = None

    def __init__(self):
        self.full: set[str] = set()

    def config_get(self, pattern):
        if self.error:
            raise self.error
        return {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}

    def pipeline(self, transaction=False):
        return Pipe(self)

    def get(self, key):
        return b"an id"

    def lrange(self, *_):
        return []

    def eval(self, *_):
        return 1

    def llen(self, *_):
        return 0

    def close(self):
        pass


def store_of(connect_it, note=NO_NOTE) -> RedisStore:
    return RedisStore(connect_it, "lists", MemoryConfigStore(), RoomLimits(), lambda: NOW_MS, note=note)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def store(client):
    made = store_of(lambda: client)
    assert made.fault() is None
    yield made
    made.close()


@pytest.mark.parametrize("error", [AWAY, RuntimeError("a defect of the client")], ids=["cluster away", "defect"])
def test_a_put_into_a_redis_that_fails_is_answered(store, client, error):
    client.error = error
    with gevent.Timeout(5), pytest.raises(BufferUncertain):
        store.put([entry(1)])
    assert not store.ordering_keys.holds("orders", b"k")


def test_a_proxy_starts_while_the_cluster_is_away():
    def away():
        raise AWAY

    store = store_of(away)
    assert "cannot be connected" in store.fault()
    store.close()


def test_the_client_of_a_cluster_that_is_away_raises_an_error_that_the_store_knows():
    store = store_of(lambda: connect(parse_address("cluster://127.0.0.1:1")))
    assert "does not answer" in store.fault()
    store.close()


def test_a_put_of_which_a_part_is_stored_is_not_answered_as_not_stored(store, client):
    shards = {f"t{number}": store._slots.shard_of(f"t{number}").key for number in range(20)}
    full = shards["t0"]
    other = next(topic for topic, key in shards.items() if key != full)
    assert full.startswith(shard_key("penstock:buffer", 0, 0)[:-2])
    client.full.add(full)
    with pytest.raises(BufferUncertain, match="a part may be stored"):
        store.put([entry(1, "t0"), entry(2, other)])
    with pytest.raises(BufferFull):
        store.put([entry(3, "t0")])


def test_a_chain_whose_first_store_may_have_the_message_never_says_not_stored():
    stores = {name: BufferMemoryStore(RoomLimits(), lambda: NOW_MS) for name in ("redis", "disk")}
    errors = {"redis": BufferUncertain("no answer"), "disk": BufferFull("full; nothing was stored")}

    def refusing(error: BufferError_):
        def write(entries):
            raise error

        return write

    for name, store in stores.items():
        store._write = refusing(errors[name])
    buffer = FallbackBuffer(stores, lambda topic: "redis+disk")
    assert [error.code for error in buffer.put([entry(1)])] == [300]
    stores["redis"]._write = refusing(errors["disk"])
    assert [error.code for error in buffer.put([entry(1)])] == [203]


def test_a_key_with_entries_in_a_later_store_goes_there_after_its_topics_policy_has_changed(store):
    stores = {"redis": store, "disk": BufferMemoryStore(RoomLimits(), lambda: NOW_MS)}
    policy = "disk"
    buffer = FallbackBuffer(stores, lambda topic: policy)
    assert buffer.put([entry(1, key=b"a")]) == [None]
    policy = "redis"
    assert buffer.put([entry(2, key=b"a")]) == [None]
    assert [stores[name].room.entries for name in ("redis", "disk")] == [0, 2]
    assert buffer.put([entry(3, key=b"b")]) == [None]
    assert [stores[name].room.entries for name in ("redis", "disk")] == [1, 2]
    assert buffer.held_by_others(stores["disk"]) == {"orders"}


@pytest.fixture
def noted(client, tmp_path):
    """A proxy that had one entry in Redis starts again, without an answer of Redis; (switch, its stores, topics told)."""
    first = store_of(lambda: client, BacklogNote(tmp_path / "redis-backlog"))
    first.put([entry(1)])
    first.close()
    client.error = AWAY
    redis = store_of(lambda: client, BacklogNote(tmp_path / "redis-backlog"))
    stores = {"redis": redis, "disk": BufferMemoryStore(RoomLimits(), lambda: NOW_MS)}
    policies = {"orders": "redis+disk", "plain": "redis", "alone": "disk"}
    told = []
    yield FallbackBuffer(stores, policies.get, lambda *each: told.append(each)), stores, told
    redis.close()


def test_a_restart_without_redis_has_later_messages_wait_on_the_disk_for_the_backlog_that_was_noted(noted, client):
    buffer, stores, told = noted
    assert buffer.has_backlog("orders") and buffer.holds("orders", b"any key")
    assert not buffer.has_backlog("plain") and not buffer.has_backlog("alone")
    assert buffer.put([entry(2), entry(3, "alone")]) == [None] * 2
    assert buffer.held_by_others(stores["disk"]) == {"orders"}
    told.clear()
    client.error = None
    stores["redis"]._check()
    assert told == [("orders", True)]  # by the entry on the disk alone
    assert buffer.held_by_others(stores["disk"]) == set() and not buffer.holds("orders", b"any key")


def test_a_redis_that_was_empty_at_the_end_holds_nothing_after_a_restart_without_it(client, tmp_path):
    path = tmp_path / "redis-backlog"
    first = store_of(lambda: client, BacklogNote(path))
    first.put([entry(1)])
    assert path.exists()
    first.recounted(OrderingKeys(), Room(RoomLimits(), lambda: NOW_MS))  # drained
    first._check()
    first.close()
    client.error = AWAY
    second = store_of(lambda: client, BacklogNote(path))
    assert not path.exists() and not second.awaits("orders")
    second.close()

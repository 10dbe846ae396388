"""The address of the Redis buffer leads to another server: a replica that lags, an empty one, an older copy, one that is
the buffer of another cluster. Whatever is missing there is counted, and nothing of a stranger is drained.
"""

import socket

import pytest

from common.config.memory_store import MemoryConfigStore as MemoryConfig
from producer_proxy.buffer.errors import BufferUnavailable, BufferUncertain
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.redis.backlog_note import NO_NOTE, BacklogNote
from producer_proxy.buffer.redis.client import connect
from producer_proxy.buffer.redis.layouts import LAYOUTS
from producer_proxy.buffer.redis.store import RedisStore
from producer_proxy.buffer.redis.survey import survey
from producer_proxy.buffer.room import RoomLimits
from tests.fault.test_redis_store import drain
from tests.services.fake_broker import wait_until
from tests.services.redis_server import RedisServer
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry, numbers


@pytest.fixture(params=tuple(LAYOUTS))
def layout(request):
    return request.param


class Redirected:
    """Stores whose address can be led to another server, as a name or a virtual address is.

    Attributes:
        server: the one that the address leads to.
    """

    def __init__(self, server, layout):
        self.server, self._layout, self._made = server, layout, []

    def open(self, config=None, note=NO_NOTE):
        config = config or with_identity()
        self._made.append(RedisStore(self._connect, self._layout, config, RoomLimits(), lambda: NOW_MS, note=note))
        return self._made[-1]

    def _connect(self):
        return connect(parse_address(f"{self.server.url}?layout={self._layout}"))

    def lead_to(self, server, store):
        """As a fail-over does: the connections to the former one end."""
        former, self.server = self.server, server
        former.stop()
        with pytest.raises(BufferUnavailable):
            while True:
                store.take((), 1, 1 << 20)
                assert store.fault() is None
                store.put([entry(999, "probe")])
        wait_until(lambda: store.fault() is None, 10)

    def close(self):
        for store in self._made:
            store.close()


def with_identity():
    """A configuration that has an entry, so it is some cluster's."""
    config = MemoryConfig()
    config.put("topic", "orders", {}, 0)
    return config


@pytest.fixture
def two(tmp_path):
    with RedisServer(tmp_path / "a") as first, RedisServer(tmp_path / "b") as second:
        yield first, second


@pytest.fixture
def led(two, layout):
    made = Redirected(two[0], layout)
    yield made
    made.close()


def follow(replica, master):
    replica.client().replicaof(master.host, str(master.port))
    wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up", 20)
    wait_until(lambda: replica.client().dbsize() == master.client().dbsize(), 10)


def cut_off(replica):
    """It is promoted: from now on it gets nothing more."""
    replica.client().replicaof("NO", "ONE")


class Named(Redirected):
    """A store whose address is a name, which this process resolves as a test says."""

    NAME = "buffer.test"

    def __init__(self, folder, layout, monkeypatch):
        self.first = RedisServer(folder / "first").start()
        self.second = RedisServer(folder / "second", host="127.0.0.2", port=self.first.port).start()
        super().__init__(self.first, layout)
        self._before = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)

    def _resolve(self, host, *arguments, **options):
        return self._before(self.server.host if host == self.NAME else host, *arguments, **options)

    def _connect(self):
        return connect(parse_address(f"redis://{self.NAME}:{self.first.port}?layout={self._layout}"))

    def close(self):
        super().close()
        self.first.stop()
        self.second.stop()


@pytest.fixture
def named(tmp_path, layout, monkeypatch):
    made = Named(tmp_path, layout, monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("former", ["ends", "stays"])
@pytest.mark.parametrize("state", ["idle", "buffering", "draining", "an ended topic"])
def test_a_name_that_leads_to_another_address_is_followed_by_the_next_connection(named, former, state):
    """The other one is a replica up to then. What goes to the former one by an open connection is counted when that ends."""
    store = named.open()
    wanted = [] if state == "idle" else [*range(10)]
    if wanted:
        store.put([entry(n) for n in wanted])
    follow(named.second, named.first)
    cut_off(named.second)
    batch = store.take((), 4, 1 << 20) if state in ("draining", "an ended topic") else []
    named.server = named.second
    if state == "an ended topic":
        store.dead_letter(batch, "its topic was deleted")
    else:
        store.remove(batch)
    missing = [*range(20, 20 + max(1, len(batch)))] if former == "stays" else []
    if missing:  # as many as were removed, so that the numbers of entries do not tell the two apart
        store.put([entry(n) for n in missing])
        assert {*missing} <= {*numbers(store)} and store.fault() is None
        named.first.client().client_kill_filter(_type="normal", skipme=True)
    else:
        named.first.stop()
    wait_until(lambda: named.second.client().client_list(_type="normal")[1:], 10)  # without this one
    assert drain(store) == wanted[len(batch) :]
    store.put([entry(99)])
    assert drain(store) == [99] and store.damaged == len(missing) and store.fault() is None
    assert survey(named.second.client(), named._layout).entries == {}


def test_of_a_replica_that_lags_what_it_lacks_is_counted_and_what_the_engine_has_is_not_given_again(led, two):
    store = led.open()
    store.put([entry(n) for n in range(10)])
    follow(two[1], two[0])
    cut_off(two[1])
    store.remove(store.take((), 4, 1 << 20))
    store.put([entry(n) for n in range(10, 14)])  # as many as were removed: both have ten
    led.lead_to(two[1], store)
    assert drain(store) == [4, 5, 6, 7, 8, 9]
    assert store.damaged == 4
    store._check()
    assert survey(two[1].client(), led._layout).entries == {} and not store.ordering_keys.holds("orders", b"k")


def test_an_empty_one_is_told_and_used(led, two):
    store = led.open()
    store.put([entry(n) for n in range(10)])
    led.lead_to(two[1], store)
    store.put([entry(20)])
    assert drain(store) == [20] and store.damaged == 10


def test_an_older_copy_of_more_entries_hides_no_loss(led, two):
    store = led.open()
    store.put([entry(n) for n in range(30)])
    follow(two[1], two[0])
    cut_off(two[1])
    assert drain(store) == [*range(30)]
    store.put([entry(n) for n in range(30, 40)])
    led.lead_to(two[1], store)
    assert drain(store) == [] and store.damaged == 10


@pytest.mark.parametrize("change", ["flushed", "another"])
def test_a_proxy_that_restarts_tells_once_that_the_redis_of_its_backlog_is_not_there(led, two, tmp_path, change):
    config = with_identity()
    store = led.open(config, BacklogNote(tmp_path / "redis-backlog"))
    store.put([entry(n) for n in range(10)])
    store.close()
    if change == "flushed":
        two[0].client().flushall()
    else:
        led.server = two[1]
    assert led.open(config, BacklogNote(tmp_path / "redis-backlog")).damaged == 1
    assert led.open(config, BacklogNote(tmp_path / "redis-backlog")).damaged == 0


def test_a_proxy_that_restarts_on_the_redis_of_its_backlog_tells_nothing(led, tmp_path):
    config = with_identity()
    store = led.open(config, BacklogNote(tmp_path / "redis-backlog"))
    store.put([entry(n) for n in range(10)])
    store.close()
    again = led.open(config, BacklogNote(tmp_path / "redis-backlog"))
    assert again.damaged == 0 and drain(again) == [*range(10)]


def test_the_buffer_of_another_cluster_is_refused_and_left_alone(led, two, layout):
    other = Redirected(two[1], layout)
    theirs = other.open()
    theirs.put([entry(n, "theirs") for n in range(100, 120)])
    store = led.open()
    store.put([entry(n) for n in range(10)])
    led.server = two[1]
    store._broken = True
    store._check()
    assert "another cluster" in store.fault() and numbers(store) == []
    with pytest.raises(BufferUnavailable, match="another cluster"):
        store.put([entry(11)])
    assert store.damaged == 0, "what is in the right one may come back"
    assert drain(theirs) == [*range(100, 120)] and theirs.damaged == 0
    led.server = two[0]
    store._broken = True
    store._check()
    assert store.fault() is None and drain(store) == [*range(10)] and store.damaged == 0
    other.close()


def test_a_proxy_does_not_start_on_the_buffer_of_another_cluster(led, two, layout):
    led.open()
    with pytest.raises(BufferUnavailable, match=r"another cluster.*penstock:buffer:owner"):
        led.open()


def told(store, entry):
    """How often an entry is in the store by the answer to its put."""
    try:
        store.put([entry])
    except BufferUncertain:
        return (0, 1)
    except BufferUnavailable:
        return (0,)
    return (1,)


RIGHTS = ["-@all", "resetkeys ~other*", "-@write", "-@read", "resetpass >another"]


@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("state", ["idle", "buffering", "draining"])
def test_a_user_whose_rights_are_cut_is_told_and_everything_goes_on_when_they_are_given_back(led, two, rights, state):
    two[0].client().execute_command("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
    admin = two[0].client(username="admin", password="admin")
    store = led.open()
    wanted = [] if state == "idle" else [*range(10)]
    if wanted:
        store.put([entry(n) for n in wanted])
    batch = store.take((), 4, 1 << 20) if state == "draining" else []
    admin.execute_command("ACL", "SETUSER", "default", *rights.split())
    admin.client_kill_filter(_type="normal", skipme=True)
    if state == "idle":
        wait_until(lambda: store.fault(), 10)
    may_be = told(store, entry(10))
    store.remove(batch)
    wait_until(lambda: store.fault(), 10)
    with pytest.raises(BufferUnavailable):
        store.put([entry(11)])
    admin.execute_command("ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all")
    wait_until(lambda: store.fault() is None, 10)
    store.put([entry(12)])
    found = drain(store)
    assert [each for each in found if each != 10] == [*wanted[len(batch) :], 12] and store.damaged == 0
    assert found.count(10) in may_be
    store._check()
    assert survey(two[0].client(), led._layout).entries == {}


def test_a_dead_letter_that_redis_refuses_stays_in_the_buffer(led, two):
    """Of an ended topic: the list of dead letters takes nothing at maxmemory, and the entry is not deleted before."""
    store = led.open()
    store.put([entry(n) for n in range(3)])
    two[0].client().config_set("maxmemory", 1)
    with pytest.raises(BufferUnavailable, match="maxmemory"):
        store.dead_letter(store.take((), 3, 1 << 20), "its topic was deleted")
    two[0].client().config_set("maxmemory", 0)
    store.dead_letter(store.take((), 3, 1 << 20), "its topic was deleted")
    assert drain(store) == [] and store.damaged == 0
    found = survey(two[0].client(), led._layout)
    assert (found.entries, found.dead) == ({}, 3)

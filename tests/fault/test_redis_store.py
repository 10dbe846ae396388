"""The Redis buffer against real servers in every bad state: away, silent, full, read-only, emptied, wrongly set; and behind codis."""

import json
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import gevent
import pytest
import redis

from common.config.memory_store import MemoryConfigStore as MemoryConfig
from producer_proxy.buffer.errors import BufferFull, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.redis.address import parse_address
from producer_proxy.buffer.redis.client import AWAY, connect
from producer_proxy.buffer.redis.layouts import LAYOUTS, HeadChanged
from producer_proxy.buffer.redis.store import RedisStore
from producer_proxy.buffer.redis.survey import survey
from producer_proxy.buffer.room import RoomLimits
from tests.e2e.running import PENSTOCK
from tests.services.codis_proxy import SERVER_COMMANDS, CodisProxy
from tests.services.fake_broker import wait_until
from tests.services.redis_server import RedisServer
from tests.unit.producer_proxy.buffer.entries import NOW_MS, entry, number_of, numbers

LAYOUT_NAMES = tuple(LAYOUTS)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(shared_server):
    """Set as it should be, and empty."""
    client = shared_server.client()
    client.config_set("maxmemory", 0)
    client.config_set("appendfsync", "always")
    client.replicaof("NO", "ONE")
    allow(client)
    client.flushall()
    return shared_server


def refuse_for_a_failed_snapshot(client):
    """MISCONF: a snapshot cannot be renamed onto a folder."""
    folder = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    folder.mkdir(exist_ok=True)
    client.config_set("save", "3600 1")

    def has_failed() -> bool:
        with suppress(redis.ResponseError):  # one is running
            client.bgsave()
        return client.info("persistence")["rdb_last_bgsave_status"] == "err"

    wait_until(has_failed, 20)


def refuse_as_a_replica(client):
    """READONLY: its master is away."""
    client.replicaof("127.0.0.1", "1")


def refuse_by_permission(client):
    """NOPERM: it may be written to, and nothing deleted."""
    client.execute_command("ACL", "SETUSER", "default", "-xdel", "-ltrim", "-eval")


REFUSALS = {
    "MISCONF": refuse_for_a_failed_snapshot,
    "read only replica": refuse_as_a_replica,
    "NOPERM|permissions": refuse_by_permission,
}


def allow(client):
    client.replicaof("NO", "ONE")
    client.execute_command("ACL", "SETUSER", "default", "+@all")
    client.config_set("save", "")


@pytest.fixture(params=REFUSALS, ids=["MISCONF", "READONLY", "NOPERM"])
def refusal(request):
    return request.param


@pytest.fixture(params=LAYOUT_NAMES)
def layout(request):
    return request.param


@pytest.fixture
def opened(server, layout):
    """Open stores on the server, each as another proxy's unless they share a configuration store."""
    made = []

    def make(config=None, accepted=(), url=None):
        address = parse_address(url or f"{server.url}?layout={layout}")
        made.append(
            RedisStore(
                lambda: connect(address),
                address.layout,
                config or MemoryConfig(),
                RoomLimits(),
                lambda: NOW_MS,
                accepted,
            )
        )
        return made[-1]

    yield make
    for store in made:
        store.close()


def drain(store) -> list[int]:
    found = []
    while batch := numbers(store, count=7):
        found += batch
        store.remove(store.take((), 7, 1 << 30))
    return found


def test_a_proxy_that_starts_again_finds_its_backlog(opened):
    config = MemoryConfig()
    store = opened(config)
    store.put([entry(n, key=b"%d" % (n % 3)) for n in range(700)])
    store.close()
    config.close()
    again = opened(config)
    assert again.room.entries == 700 and again.ordering_keys.holds("orders", b"2")
    assert drain(again) == list(range(700)) and not again.ordering_keys.holds("orders", b"2")


def test_another_proxy_takes_over_the_slot_of_a_dead_one_and_lets_it_go_when_it_is_drained(opened):
    dead, config = MemoryConfig(), None
    config = dead.peer()
    first, second = opened(dead), opened(config)
    first.put([entry(n) for n in range(20)])
    assert numbers(second) == []
    first.close()
    second._check()
    assert drain(second) == list(range(20))
    second._check()
    assert second._slots.adopted == set() and dead.peer().claim("penstock:buffer/slot/0")


def test_two_drainers_of_one_shard_cost_copies_and_never_a_message(server, layout):
    shards = [LAYOUTS[layout](server.client(), "penstock:buffer:{0.0}") for _ in range(2)]
    pipe = server.client().pipeline(transaction=False)
    shards[0].push(pipe, [b"%d" % n for n in range(10)])
    pipe.execute()
    stale, live = (shard.read(4) for shard in shards)
    assert stale == live
    shards[1].delete([handle for handle, _ in live])
    with pytest.raises(HeadChanged):
        shards[0].delete([handle for handle, _ in stale])
    fresh = LAYOUTS[layout](server.client(), "penstock:buffer:{0.0}")
    assert [value for _, value in fresh.read(100)] == [b"%d" % n for n in range(4, 10)]


def test_what_the_engine_has_is_not_given_again_while_redis_refuses_to_delete_it(server, opened, layout, refusal):
    store = opened()
    store.put([entry(n, f"t{n % 9}", key=b"%d" % n) for n in range(60)])
    REFUSALS[refusal](server.client())
    first = store.take((), 7, 1 << 30)
    store.remove(first)  # before the store has looked at its Redis again
    assert re.search(refusal, store.fault()) and store.stats().undeleted == len(first)
    assert not any(store.ordering_keys.holds(kept.entry.topic, kept.entry.key) for kept in first)
    given = [number_of(kept.entry) for kept in first] + drain(store)
    assert sorted(given) == list(range(60)) and store.stats().undeleted == 60 and store.room.entries == 0
    store._check()
    assert re.search(refusal, store.fault()) and numbers(store) == [] and store.stats().undeleted == 60
    with pytest.raises(BufferUnavailable, match=refusal):
        store.put([entry(60)])
    allow(server.client())
    store._check()
    assert store.fault() is None and store.stats().undeleted == store.damaged == 0
    store.put([entry(61)])
    assert drain(store) == [61] and survey(server.client(), layout).entries == {}


def test_it_is_known_before_the_first_message_that_redis_refuses_to_delete(server, opened, refusal):
    REFUSALS[refusal](server.client())
    store = opened()
    assert re.search(refusal, store.fault())
    allow(server.client())
    wait_until(lambda: store.fault() is None, 10)


def test_a_connection_that_is_lost_and_a_new_count_do_not_bring_back_what_the_engine_has(server, opened, refusal):
    store = opened()
    store.put([entry(n) for n in range(1200)])
    REFUSALS[refusal](server.client())
    store.remove(store.take((), 700, 1 << 30))
    server.client().client_kill_filter(_type="normal", skipme=True)
    store._check()
    store._check()
    assert store.room.entries == 500 and store.stats().undeleted == 700 and store.damaged == 0
    assert numbers(store, count=3) == [700, 701, 702]
    allow(server.client())
    store._check()
    assert store.stats().undeleted == 0 and drain(store) == list(range(700, 1200)) and store.damaged == 0


def test_a_restart_gives_again_what_redis_has_not_deleted_and_nothing_is_lost(server, opened, refusal):
    config = MemoryConfig()
    store = opened(config)
    store.put([entry(n) for n in range(10)])
    REFUSALS[refusal](server.client())
    store.remove(store.take((), 4, 1 << 30))
    store.close()
    again = opened(config)
    assert drain(again) == list(range(10)) and again.stats().undeleted == 10


def test_a_topic_that_is_held_is_not_in_the_way_of_a_later_deletion(server, opened, layout):
    if layout == "lists":
        pytest.skip("a list does not pass over a topic")
    store = opened()
    held, other = topics_of_one_shard(store)
    store.put([entry(n, held) for n in range(1100)])
    store.put([entry(n, other) for n in range(1100, 2200)])
    refuse_by_permission(server.client())
    while batch := store.take({held}, 200, 1 << 30):
        store.remove(batch)
    assert store.stats().undeleted == 1100 and numbers(store, count=2) == [0, 1]
    allow(server.client())
    store._check()
    assert store.stats().undeleted == 0 and server.client().xlen(store._slots.shard_of(held).key) == 1100


def topics_of_one_shard(store) -> tuple[str, str]:
    shards = [(topic, store._slots.shard_of(topic).key) for topic in (f"t{number}" for number in range(20))]
    first, second = [topic for topic, key in shards if key == shards[0][1]][:2]
    return first, second


def test_a_value_that_is_not_ours_does_not_fill_the_dead_letter_list_while_it_cannot_be_deleted(server, opened, layout):
    store = opened()
    store.put([entry(1)])
    key = store._slots.shard_of("orders").key
    pipe = server.client().pipeline(transaction=False)
    LAYOUTS[layout](server.client(), key).push(pipe, [b"not ours"])
    pipe.execute()
    store.put([entry(2)])
    refuse_by_permission(server.client())
    assert drain(store) == [1, 2] and numbers(store) == []
    store._check()
    assert numbers(store) == [] and server.client().lrange("penstock:buffer:dead", 0, -1) == [b"not ours"]
    allow(server.client())
    store._check()
    assert survey(server.client(), layout).entries == {}


def test_at_maxmemory_nothing_more_is_taken_and_everything_drains(server, opened):
    store = opened()
    store.put([entry(n, size=2000) for n in range(100)])
    memory = server.client().info("memory")
    counted = memory["used_memory"] - memory.get("mem_not_counted_for_evict", 0)
    server.client().config_set("maxmemory", counted - 10_000)
    with pytest.raises(BufferFull, match="maxmemory"):
        store.put([entry(100, key=b"new", size=50_000)])
    assert not store.ordering_keys.holds("orders", b"new")
    assert drain(store) == list(range(100)) and store.damaged == 0


def test_a_killed_redis_has_all_that_was_promised_when_it_is_back(server, opened):
    store = opened()
    store.put([entry(n) for n in range(50)])
    server.stop()
    with pytest.raises(BufferUncertain):
        store.put([entry(50)])
    with pytest.raises(BufferUnavailable, match="does not answer"):
        store.put([entry(51)])
    assert store.stats().fault and numbers(store) == []
    server.start()
    wait_until(lambda: store.fault() is None, 10)
    store.put([entry(52)])
    assert drain(store) == [*range(50), 52] and store.damaged == 0


def test_a_redis_that_is_silent_costs_a_second_once_and_what_it_did_take_is_found(server, opened):
    store = opened()
    store.put([entry(1)])
    server.signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(BufferUncertain):
        store.put([entry(2)])
    with pytest.raises(BufferUnavailable):
        store.put([entry(3)])
    assert time.monotonic() - began < 2.5
    server.signal(signal.SIGCONT)
    wait_until(lambda: store.fault() is None, 10)
    numbers(store)
    counted, found = store.room.entries, drain(store)
    assert set(found) in ({1}, {1, 2}) and counted == len(found)


def test_keys_stay_diverted_while_everything_is_counted_anew(opened, layout, monkeypatch):
    store, kind = opened(), LAYOUTS[layout]
    store.put([entry(n) for n in range(3)])
    read, diverted, told = kind.read, [], []

    def watched(shard, count, after=None):
        diverted.append(store.ordering_keys.holds("orders", b"k"))
        return read(shard, count, after)

    monkeypatch.setattr(kind, "read", watched)
    store.ordering_keys.watch(lambda topic, diverts: told.append((topic, diverts)))
    store._recount()
    assert len(diverted) > 4 and all(diverted) and told == []
    assert store.room.entries == 3 and drain(store) == [0, 1, 2]


class FarConfig(MemoryConfig):
    """While it is away nobody can tell who holds what."""

    unavailable_since_ms = None

    def holds(self, name: str) -> bool:
        return self.unavailable_since_ms is None and super().holds(name)


def test_while_the_configuration_store_is_away_puts_go_on_keys_stay_diverted_and_nothing_is_drained(opened):
    config = FarConfig()
    store = opened(config)
    store.put([entry(1)])
    config.unavailable_since_ms = NOW_MS
    store._check()
    store.put([entry(2)])
    assert numbers(store) == [] and store.ordering_keys.holds("orders", b"k") and store.damaged == 0
    config.unavailable_since_ms = None
    store._check()
    assert drain(store) == [1, 2] and not store.ordering_keys.holds("orders", b"k")


def test_a_call_of_which_one_topic_is_refused_leaves_nothing_counted_wrongly(server, opened):
    store = opened()
    topics = [f"t{n}" for n in range(20)]
    bad = store._slots.shard_of("t0").key
    server.client().set(bad, "somebody's")
    with pytest.raises((BufferUnavailable, BufferUncertain)):
        store.put([entry(n, topic) for n, topic in enumerate(topics)])
    server.client().delete(bad)
    store._check()
    counted, found = store.room.entries, drain(store)
    assert counted == len(found) and not any(store.ordering_keys.topics())


def test_client_pause_is_silence_too(server, opened):
    store = opened()
    store.put([entry(1)])
    server.client().execute_command("CLIENT", "PAUSE", "1500")
    with pytest.raises(BufferUncertain):
        store.put([entry(2)])
    wait_until(lambda: store.fault() is None, 10)
    assert set(drain(store)) in ({1}, {1, 2})


def test_a_read_only_replica_takes_nothing(server, opened, tmp_path):
    store = opened()
    with RedisServer(tmp_path) as master:
        server.client().replicaof("127.0.0.1", str(master.port))
        with pytest.raises((BufferUnavailable, BufferUncertain)):
            store.put([entry(1)])


def test_flushall_is_found_and_reported_and_frees_the_keys(server, opened, caplog):
    store = opened()
    store.put([entry(n) for n in range(30)])
    server.client().flushall()
    assert numbers(store) == []
    assert store.damaged == 30 and "30 entries that were answered BUFFERED are gone" in caplog.text
    numbers(store)
    assert not store.ordering_keys.holds("orders", b"k")


def test_what_was_put_after_a_flushall_stays_diverted_when_a_batch_from_before_it_is_acknowledged(server, opened):
    store = opened()
    store.put([entry(n) for n in range(30)])
    batch = store.take((), 20, 1 << 20)
    server.client().flushall()
    store.put([entry(30)])
    store._check()
    store.remove(batch)
    assert numbers(store) == [30] and store.ordering_keys.holds("orders", b"k") and store.room.entries == 1
    assert drain(store) == [30] and not store.ordering_keys.holds("orders", b"k")


def test_flushall_between_two_writes_is_found_by_the_second(server, opened, caplog):
    store = opened()
    store.put([entry(n) for n in range(30)])
    server.client().flushall()
    store.put([entry(31)])
    store._check()
    assert store.damaged == 30
    assert drain(store) == [31]


def test_a_key_of_another_type_is_a_refusal(server, opened):
    store = opened()
    for part in range(4):
        server.client().set(f"penstock:buffer:{{0.{part}}}", "somebody's")
    with pytest.raises((BufferUnavailable, BufferUncertain), match="WRONGTYPE"):
        store.put([entry(1)])


def test_a_value_that_is_not_ours_is_set_aside_and_holds_up_nobody(server, opened, layout):
    store = opened()
    store.put([entry(1)])
    key = next(iter(server.client().keys("penstock:buffer:{*")))
    pipe = server.client().pipeline(transaction=False)
    LAYOUTS[layout](server.client(), key).push(pipe, [b"not ours"])
    pipe.execute()
    store.put([entry(2)])
    assert drain(store) == [1, 2]
    assert server.client().lrange("penstock:buffer:dead", 0, -1) == [b"not ours"]


@pytest.mark.parametrize(
    ("setting", "value", "name"),
    [
        ("maxmemory-policy", "allkeys-lru", "evicting"),
        ("appendfsync", "everysec", "everysec"),
        ("appendonly", "no", "everysec"),
    ],
)
def test_a_redis_that_may_lose_messages_is_refused_unless_it_was_allowed_by_name(server, opened, setting, value, name):
    store = opened()
    client, good = server.client(), server.client().config_get(setting)[setting]
    client.config_set(setting, value)
    try:
        with pytest.raises(BufferUnavailable, match=f"--buffer-redis-accept {name}"):
            opened()
        store._check()
        with pytest.raises(BufferUnavailable, match=setting):
            store.put([entry(1)])
        allowed = opened(accepted=[name])
        allowed.put([entry(2)])
        assert setting in allowed.stats().warning and allowed.stats().fault is None
    finally:
        client.config_set(setting, good)
    store._check()
    assert store.fault() is None


def test_a_redis_that_is_away_at_the_start_is_used_once_it_answers(tmp_path, opened, layout):
    later = RedisServer(tmp_path)
    store = opened(url=f"{later.url}?layout={layout}")
    with pytest.raises(BufferUnavailable, match="does not answer"):
        store.put([entry(1)])
    with later:
        wait_until(lambda: store.fault() is None, 10)
        store.put([entry(2)])
        assert drain(store) == [2]


def shown(url: str, *options: str) -> tuple[int, dict, str]:
    """(exit code, answer, errors) of `penstock buffer status`."""
    line = [*PENSTOCK, "buffer", "status", url, "-o", "json", *options]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_what_waits_in_a_redis_is_shown_and_what_is_wrong_with_it(server, opened, layout):
    store, url = opened(), f"{server.url}?layout={layout}"
    store.put([entry(n, f"t{n % 5}") for n in range(40)])
    store.dead_letter(store.take((), 1, 1 << 20), "too large")
    code, found, _ = shown(url)
    assert (code, found["entries"], found["dead"], found["slots"]) == (0, 39, 1, ["0 (39)"])
    assert found["weak"] == found["damage"] == [] and found["oldest_s"] > 0
    server.client().config_set("appendfsync", "everysec")
    server.client().set("penstock:buffer:{7.1}", "somebody's")
    code, found, _ = shown(url)
    assert code == 1 and "appendfsync is everysec" in found["weak"][0] and "penstock:buffer:{7.1}" in found["damage"][0]


@pytest.mark.parametrize(
    ("url", "code"), [("redis://127.0.0.1:1", 5), ("redis://nowhere", 2), ("no-such-directory", 2)]
)
def test_a_place_that_cannot_be_looked_at_is_a_short_sentence(url, code):
    exit_code, _, errors = shown(url)
    assert exit_code == code and "Traceback" not in errors and errors


@pytest.fixture(scope="module")
def codis(tmp_path_factory):
    """Two servers on which nothing is left but codis' commands that we need, behind a router."""
    with RedisServer(tmp_path_factory.mktemp("all-commands")) as whole:
        renamed = tuple(name for name in whole.client().command() if name not in SERVER_COMMANDS)
    servers = [RedisServer(tmp_path_factory.mktemp(f"codis{n}"), renamed=renamed).start() for n in range(2)]
    proxy = CodisProxy([server.port for server in servers])
    yield proxy
    proxy.close()
    for server in servers:
        server.stop()


def test_a_password_that_is_changed_in_its_file_is_used_by_the_next_connection(tmp_path):
    file = tmp_path / "password"
    file.write_text("first\n")
    with RedisServer(tmp_path / "redis") as server:
        server.client().config_set("requirepass", "first")
        client = connect(parse_address(server.url), file)
        assert client.ping()
        file.write_text("second\n")
        client.config_set("requirepass", "second")
        client.client_kill_filter(_type="normal", skipme=False)
        wait_until(lambda: is_served(client), 10)


def is_served(client) -> bool:
    try:
        return bool(client.ping())
    except AWAY:
        return False


def test_codis_has_all_that_the_lists_layout_needs(codis):
    address = parse_address(f"codis://127.0.0.1:{codis.port}")
    config = MemoryConfig()
    with pytest.raises(BufferUnavailable, match="--buffer-redis-accept unverified"):
        RedisStore(lambda: connect(address), address.layout, config, RoomLimits(), lambda: NOW_MS)
    store = RedisStore(
        lambda: connect(address), address.layout, config.peer(), RoomLimits(), lambda: NOW_MS, ["unverified"]
    )
    assert "not known" in store.stats().warning
    waiting = [
        gevent.spawn(store.put, [entry(n, f"t{n % 5}") for n in range(start, start + 10)])
        for start in range(0, 100, 10)
    ]
    gevent.joinall(waiting, raise_error=True)
    store.dead_letter(store.take((), 1, 1 << 20), "too large")
    found = drain(store)
    assert len(found) == 99
    for rest in range(5):
        mine = [n for n in found if n % 5 == rest]
        assert mine == sorted(mine)
    assert store.stats().dead == 1
    store.close()
    assert set(codis.refused) == {b"CONFIG", b"INFO"}, "codis does not tell who it is, so each connection counts again"

"""The view: what it shows, how it follows, how it starts without the store."""

import logging
import stat
import threading

import pytest

from common.clock import FakeClock
from common.config import kind_view
from common.config.errors import StoreUnavailable
from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView


@pytest.fixture
def store():
    return MemoryConfigStore()


@pytest.fixture
def open_view(store, tmp_path):
    views = []

    def open_it(on=None, **options):
        views.append(ConfigView(on or store, tmp_path / "snapshot", **options))
        return views[-1]

    yield open_it
    for view in views:
        view.close()


def test_a_definition_is_parsed_once_and_kept(store, open_view):
    store.put("topic", "orders", {"queues": 3}, 0)
    view = open_view()
    assert view.topic("orders").queues == 3
    assert view.topic("orders") is view.topic("orders")


def test_an_unknown_name_is_none_until_it_is_created(store, open_view):
    view = open_view()
    assert view.topic("orders") is None
    store.put("topic", "orders", {}, 0)
    assert view.topic("orders") is not None


def test_a_deleted_definition_is_gone_at_once(store, open_view):
    version = store.put("application", "shop", {}, 0)
    view = open_view()
    assert view.application("shop")
    store.delete("application", "shop", version)
    assert view.application("shop") is None


def test_each_change_raises_the_generation_before_the_listeners_are_called(store, open_view):
    view = open_view()
    seen = []
    view.on_change(lambda: seen.append((view.generation, view.topic("orders") is not None)))
    before = view.generation
    store.put("topic", "orders", {}, 0)
    assert seen == [(before + 1, True)]


def test_a_listener_that_fails_does_not_stop_the_others(store, open_view):
    view = open_view()
    seen = []
    view.on_change(lambda: 1 / 0)
    view.on_change(lambda: seen.append(1))
    store.put("topic", "orders", {}, 0)
    assert seen == [1]


def test_a_change_keeps_what_was_parsed_of_other_buckets(store, open_view):
    store.put("topic", "orders", {}, 0)
    view = open_view()
    before = view.topic("orders")
    store.put("topic", "payments", {}, 0)
    assert view.topic("orders") is before


def test_a_broken_definition_is_unknown_and_logged(store, open_view, caplog):
    store.put("topic", "orders", {"queues": 0}, 0)
    assert open_view().topic("orders") is None
    assert "queues: 0 is out of range: use 1 to 10,000" in caplog.text


@pytest.mark.parametrize("name", ["", "a\t1\t{}", "\n", "é", "x" * 5000])
def test_a_hostile_name_is_just_unknown(store, open_view, name):
    store.put("topic", "a", {}, 0)
    assert open_view().topic(name) is None


def held(view):
    topics = view._kinds["topic"]
    return sum(map(len, topics.recent)) + sum(map(len, topics.older))


def test_names_that_do_not_exist_do_not_fill_the_memory(store, open_view, monkeypatch):
    monkeypatch.setattr(kind_view, "PARSED_MAX", 1_000)
    view = open_view()
    for i in range(1_000):
        assert view.topic(f"nobody-{i}") is None
    assert held(view) <= 2 * 1_000 / kind_view.ABSENT_WEIGHT


def test_a_family_of_any_size_fills_no_more_memory_than_its_bound_and_keeps_what_is_in_use(
    store, open_view, monkeypatch
):
    monkeypatch.setattr(kind_view, "PARSED_MAX", 100)
    store.put("family", "m.*", {"queues": 2}, 0)
    view = open_view()
    hot = view.topic("m.hot")
    for i in range(5_000):
        assert view.topic(f"m.{i}").queues == 2
        assert view.topic("m.hot") is hot
        assert held(view) <= 202


def test_a_family_defines_every_topic_of_its_prefix_and_says_so(store, open_view):
    store.put("family", "metrics.*", {"queues": 3, "durability": "memory"}, 0)
    view = open_view()
    topic = view.topic("metrics.cpu")
    assert (topic.name, topic.queues, topic.durability, topic.family) == ("metrics.cpu", 3, "memory", "metrics.*")
    assert view.topic("metrics.cpu") is topic
    assert view.topic("metric") is None


def test_the_longest_prefix_wins_and_an_entry_of_its_own_goes_before_any(store, open_view):
    for name, queues in {"*": 1, "metrics.*": 2, "metrics.cpu.*": 3}.items():
        store.put("family", name, {"queues": queues}, 0)
    store.put("topic", "metrics.cpu.0", {"queues": 9}, 0)
    view = open_view()
    names = ("other", "metrics.ram", "metrics.cpu.1", "metrics.cpu.0")
    assert [view.topic(name).queues for name in names] == [1, 2, 3, 9]
    assert view.topic("metrics.cpu.0").family is None


def test_families_and_entries_are_followed_as_they_come_and_go(store, open_view):
    view = open_view()
    assert view.topic("m.a") is None
    version = store.put("family", "m.*", {"queues": 2}, 0)
    assert view.topic("m.a").queues == 2
    own = store.put("topic", "m.a", {"queues": 5}, 0)
    assert view.topic("m.a").queues == 5
    store.delete("topic", "m.a", own)
    assert view.topic("m.a").queues == 2
    version = store.put("family", "m.*", {"queues": 4}, version)
    assert view.topic("m.a").queues == 4
    store.delete("family", "m.*", version)
    assert view.topic("m.a") is None


def test_a_broken_entry_or_family_is_not_replaced_by_a_shorter_prefix(store, open_view, caplog):
    store.put("family", "*", {}, 0)
    store.put("family", "m.*", {"durability": "not of this version"}, 0)
    store.put("topic", "orders", {"queues": 0}, 0)
    view = open_view()
    assert view.topic("m.a") is None
    assert view.topic("orders") is None
    assert view.topic("other") is not None
    assert 'family "m.*": durability' in caplog.text


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a*", "é", "x" * 250])
def test_a_family_of_everything_defines_no_wrong_name(store, open_view, name):
    store.put("family", "*", {}, 0)
    assert open_view().topic(name) is None


def test_families_are_in_the_snapshot(store, open_view):
    store.put("family", "m.*", {"queues": 3}, 0)
    open_view().close()
    away = store.peer()
    away.set_available(False)
    assert open_view(on=away).topic("m.a").queues == 3


def test_the_version_at_work_is_reported_after_each_change(store, open_view):
    view = open_view(process="proxy")
    store.put("topic", "orders", {}, 0)
    assert store.applied()["proxy"].version == view.version == store.version()


def test_settings_come_as_they_are(store, open_view):
    store.put("setting", "limits", {"calls": 5}, 0)
    assert open_view().setting("limits") == {"calls": 5}


def test_it_starts_on_the_snapshot_while_the_store_is_away_and_says_how_old_it_is(store, open_view):
    store.put("topic", "orders", {"queues": 3}, 0)
    open_view().close()
    away = store.peer()
    away.set_available(False)
    clock = FakeClock(now_ms=stale_clock_ms())
    view = open_view(on=away, clock=clock)
    assert view.topic("orders").queues == 3
    assert 3_599 < view.age_s < 3_700
    clock.advance(60_000)
    assert view.age_s > 3_650


def stale_clock_ms() -> int:
    import time

    return time.time_ns() // 1_000_000 + 3_600_000


def test_a_view_on_a_snapshot_catches_up_when_the_store_is_back(store, open_view):
    version = store.put("topic", "orders", {"queues": 3}, 0)
    open_view().close()
    away = store.peer()
    away.set_available(False)
    view = open_view(on=away)
    store.put("topic", "orders", {"queues": 4}, version)
    assert view.topic("orders").queues == 3
    away.set_available(True)
    assert view.topic("orders").queues == 4
    assert view.age_s == 0.0


def test_without_store_and_snapshot_it_does_not_start(store, tmp_path):
    store.set_available(False)
    with pytest.raises(StoreUnavailable, match="no snapshot"):
        ConfigView(store, tmp_path / "snapshot")


@pytest.mark.parametrize("damage", [b"", b"garbage", b'{"format":1}\n', b'{"format":2,"kinds":{},"sha256":""}\n'])
def test_a_damaged_snapshot_is_ignored_with_a_warning(store, tmp_path, damage, caplog):
    (tmp_path / "snapshot").write_bytes(damage)
    store.set_available(False)
    with pytest.raises(StoreUnavailable), caplog.at_level(logging.WARNING):
        ConfigView(store, tmp_path / "snapshot")
    assert "damaged" in caplog.text


def test_a_flipped_bit_anywhere_in_the_snapshot_is_noticed_or_harmless(store, open_view, tmp_path):
    store.put("topic", "orders", {"queues": 3}, 0)
    open_view().close()
    good = (tmp_path / "snapshot").read_bytes()
    away = store.peer()
    away.set_available(False)
    for at in range(good.index(b"\n") + 1, len(good)):
        (tmp_path / "snapshot").write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        with pytest.raises(StoreUnavailable):
            ConfigView(away, tmp_path / "snapshot")


def test_the_snapshot_is_for_its_owner_only(store, open_view, tmp_path):
    open_view().close()
    assert stat.S_IMODE((tmp_path / "snapshot").stat().st_mode) == 0o600


def test_an_outage_later_on_is_told_by_its_age(store, open_view):
    view = open_view(clock=FakeClock(now_ms=10_000))
    assert view.age_s == 0.0
    store.set_available(False, now_ms=4_000)
    assert view.age_s == 6.0


def test_a_refresh_that_failed_is_made_up_for(store, open_view, monkeypatch):
    view = open_view()
    whole = store.buckets
    failed = threading.Event()

    def once_unavailable(kind, numbers):
        if not failed.is_set():
            failed.set()
            raise StoreUnavailable("hiccup")
        return whole(kind, numbers)

    monkeypatch.setattr(store, "buckets", once_unavailable)
    seen = threading.Event()
    view.on_change(seen.set)
    store.put("topic", "orders", {}, 0)
    assert seen.wait(10)
    assert view.topic("orders")

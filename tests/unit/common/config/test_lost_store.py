"""A store that lost its content is damaged and not empty: the view keeps what it knew until an operator accepts it."""

import os

import pytest
from prometheus_client import CollectorRegistry

from common.admin import transfer
from common.admin.administrator import Administrator
from common.clock import FakeClock
from common.config import snapshot
from common.config.applying import laggards, wait_applied
from common.config.errors import StoreDamaged, StoreUnavailable
from common.config.health import ConfigMetrics, config_health
from common.config.identity import StoreIdentity
from common.config.memory_store import MemoryConfigStore
from common.config.store import GENERATION, Change
from common.config.view import ConfigView
from common.credential import Verifier, mint
from common.errors import AuthenticationError, CredentialUnchecked
from tests.waiting import until


@pytest.fixture
def store():
    made = MemoryConfigStore()
    made.put_many("topic", [Change(f"orders-{number}", {"queues": 3}, 0) for number in range(20)])
    made.put("application", "shop", {}, 0)
    return made


@pytest.fixture
def open_view(store, tmp_path):
    views = []

    def open_it(on=None, **options):
        views.append(ConfigView(on or store, tmp_path / "snapshot", **options))
        return views[-1]

    yield open_it
    for view in views:
        view.close()


def saved_topics(tmp_path) -> bool:
    saved = snapshot.load(tmp_path / "snapshot")
    return saved is not None and any(saved.kinds["topic"].payloads)


def test_an_emptied_store_leaves_the_view_and_its_snapshot_as_they_were(store, open_view, tmp_path, caplog):
    view = open_view(process="proxy")
    applied = store.applied()["proxy"].version
    store.wipe()
    assert view.topic("orders-1").queues == 3 and view.application("shop")
    assert "the cluster id" in view.damage and "penstock config repair" in view.damage
    assert view.age_s > 0
    assert caplog.text.count("keeping its last state") == 1
    assert store.applied()["proxy"].version == applied
    view.close()
    assert saved_topics(tmp_path)


def test_a_restored_store_is_not_applied_before_the_process_follows_it(store, open_view, tmp_path):
    for _ in range(3):  # numbers that the restored store does not reach again
        store.put("application", "shop", {}, store.get("application", "shop").version)
    open_view(process="proxy").close()
    saved = transfer.export_snapshot(tmp_path / "snapshot")
    view = open_view(process="proxy")
    store.wipe()
    shared = store._shared
    shared.applied.clear(), shared.members.clear()  # the reports are lost, too
    until(lambda: laggards(store, saved["version"] | {GENERATION: 1}), "the process to tell of itself")
    transfer.apply(Administrator(store, "test"), saved, transfer.differences(store, saved, deletes=False))
    assert store.version()["application"] < saved["version"]["application"]
    assert laggards(store, store.version()) == ["proxy"]
    assert wait_applied(store, store.version(), 10.0) == []
    assert view.damage is None and view.version == store.version()


def test_a_start_on_an_emptied_store_keeps_to_the_snapshot(store, open_view, tmp_path):
    open_view().close()
    store.wipe()
    view = open_view()
    assert view.topic("orders-1") and view.damage and view.age_s > 0
    view.close()
    assert saved_topics(tmp_path)


def test_a_store_that_was_made_again_is_another_one_whatever_it_holds(store, open_view):
    view = open_view()
    store.wipe()
    for _ in range(5):
        found = store.get("topic", "orders-1")
        store.put("topic", "orders-1", {"queues": 1}, found.version if found else 0)
    assert view.topic("orders-1").queues == 3
    assert "this process belongs to" in view.damage


def test_a_kind_whose_index_is_gone_is_kept_and_the_others_are_followed(store, open_view):
    view = open_view()
    kept = dict(store._shared.revisions), dict(store._shared.payloads)
    store.wipe("topic")
    assert view.topic("orders-1") and "kind=topic: all of it is gone" in view.damage
    store.put("application", "bank", {}, 0)
    assert view.application("bank")
    store._shared.revisions["topic"] = kept[0]["topic"]
    store._shared.payloads.update({key: data for key, data in kept[1].items() if key[0] == "topic"})
    until(lambda: view.damage is None, "the view to follow the store that is whole again")
    assert view.age_s == 0.0


def test_an_older_copy_of_the_store_is_not_followed(store, open_view):
    old = dict(store._shared.revisions), dict(store._shared.payloads)
    found = store.get("topic", "orders-1")
    store.put("topic", "orders-1", {"queues": 7}, found.version)
    view = open_view()
    store._shared.revisions, store._shared.payloads = old
    store.put("topic", "other", {}, 0)
    assert view.topic("orders-1").queues == 7 and view.topic("other") is None
    assert "1 of 256 buckets are older" in view.damage


def test_an_operator_may_accept_the_store_as_it_is(store, open_view, tmp_path):
    view = open_view(process="proxy")
    identity = store.identity()
    store.wipe()
    store.set_identity(StoreIdentity(identity.cluster, 1))
    store.put("topic", "new", {}, 0)
    until(lambda: view.topic("new") and view.topic("orders-1") is None, "the accepted content")
    until(lambda: view.damage is None and view.age_s == 0.0, "the other kinds")
    until(lambda: store.applied()["proxy"].version == store.version(), "its report")
    view.close()
    assert snapshot.load(tmp_path / "snapshot.1") is not None, "the snapshot before is kept"
    assert open_view().topic("orders-1") is None


def test_deleting_every_entry_by_commands_is_followed(store, open_view):
    view = open_view()
    changes = [Change(name, None, found.version) for name, found in store.entries("topic")]
    store.put_many("topic", changes)
    assert view.topic("orders-1") is None and view.damage is None
    assert view.was_deleted("topic", "orders-1") and view.topic_was_deleted("orders-1")
    assert not view.was_deleted("topic", "never-was") and not view.topic_was_deleted("never-was")


def test_entries_that_are_gone_without_a_record_of_their_deletion_are_kept(store, open_view, monkeypatch):
    view = open_view()
    monkeypatch.setattr("common.config.buckets.is_deleted", lambda text, name: False)
    store.put_many("topic", [Change(name, None, found.version) for name, found in store.entries("topic")])
    assert view.topic("orders-1") and "20 of 20 entries are gone without a record" in view.damage


def test_an_entry_made_again_is_not_deleted_and_a_familys_topics_are_with_it(store, open_view):
    view = open_view()
    version = store.get("topic", "orders-1").version
    store.delete("topic", "orders-1", version)
    store.put("topic", "orders-1", {}, 0)
    assert not view.was_deleted("topic", "orders-1")
    version = store.put("family", "m.*", {}, 0)
    assert not view.topic_was_deleted("m.cpu")
    store.delete("family", "m.*", version)
    assert view.topic("m.cpu") is None and view.topic_was_deleted("m.cpu")


def test_the_records_of_deletions_are_bounded(store, monkeypatch):
    monkeypatch.setattr("common.config.buckets.DELETIONS_MAX", 3)
    for number in range(10):
        store.delete("broker_group", f"g{number}", store.put("broker_group", f"g{number}", {}, 0))
    view = ConfigView(store)
    deleted = [number for number in range(10) if view.was_deleted("broker_group", f"g{number}")]
    view.close()
    assert deleted == [7, 8, 9] and store.names("broker_group") == []


def test_a_snapshot_of_an_earlier_version_has_no_identity_and_is_checked_by_its_revisions(store, open_view, tmp_path):
    view = open_view()
    view.close()
    snapshot.save(tmp_path / "snapshot", {kind: each.buckets for kind, each in view._kinds.items()}, 0)
    again = open_view()
    assert again.damage is None
    again.close()
    store.wipe()
    snapshot.save(tmp_path / "snapshot", {kind: each.buckets for kind, each in view._kinds.items()}, 0)
    assert "all of it is gone" in open_view().damage


def test_earlier_snapshots_are_kept_an_hour_apart(store, open_view, tmp_path):
    for hour in range(6):
        open_view().close()
        for path in tmp_path.glob("snapshot*"):
            os.utime(path, (path.stat().st_mtime - 3601,) * 2)
        assert len(list(tmp_path.glob("snapshot*"))) == min(4, hour + 1)


def test_a_new_store_is_followed_from_nothing(tmp_path):
    store = MemoryConfigStore()
    view = ConfigView(store, tmp_path / "snapshot")
    store.put("topic", "orders", {}, 0)
    assert view.topic("orders") and view.damage is None
    view.close()


def test_a_damaged_store_without_a_snapshot_does_not_start(store, monkeypatch):
    def damaged(kind, numbers):
        raise StoreDamaged("bucket 7: damaged")

    monkeypatch.setattr(store, "buckets", damaged)
    with pytest.raises(StoreUnavailable, match="no snapshot"):
        ConfigView(store)


UNREADABLE = {
    "topic": ("orders-1", {"queues": 5}, {"queues": 5, "durability": "of a later version"}),
    "group": ("readers", {"paused": True}, {"paused": True, "order": "of a later version"}),
    "application": ("shop", {}, {"keys": "of a later version"}),
    "family": ("m.*", {"queues": 5}, {"queues": 5, "durability": "of a later version"}),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_entry_of_a_later_version_keeps_its_last_known_form_also_over_a_restart(kind, store, open_view):
    name, good, later = UNREADABLE[kind]
    found = store.get(kind, name)
    version = store.put(kind, name, good, found.version if found else 0)
    view = open_view()

    def parsed(view):
        ask = {"topic": view.topic, "group": view.group, "application": view.application}.get(kind)
        return view.topic("m.cpu") if ask is None else ask(name)

    before = parsed(view)
    version = store.put(kind, name, later, version)
    assert parsed(view) == before is not None
    assert view.is_unreadable(kind, name)
    store.put(kind, name, {**later, "more": 1}, version)
    view.close()
    assert parsed(open_view()) == before


def test_an_entry_that_is_readable_again_is_used_and_a_deleted_one_is_gone(store, open_view):
    version = store.get("topic", "orders-1").version
    view = open_view()
    version = store.put("topic", "orders-1", {"queues": 0}, version)
    assert view.topic("orders-1").queues == 3
    version = store.put("topic", "orders-1", {"queues": 4}, version)
    assert view.topic("orders-1").queues == 4 and not view.is_unreadable("topic", "orders-1")
    version = store.put("topic", "orders-1", {"queues": 0}, version)
    store.delete("topic", "orders-1", version)
    assert view.topic("orders-1") is None


def test_a_configuration_that_is_too_old_is_not_trusted_and_voids_what_was_learnt(store):
    clock = FakeClock(now_ms=1_000_000)
    view = ConfigView(store, age_s_max=60.0, clock=clock)
    changes = []
    view.on_change(lambda: changes.append(view.is_trusted))
    verifier = Verifier(view, clock)
    credential = mint("shop", "k", "s" * 20, clock.now_ms())
    store.set_available(False, now_ms=clock.now_ms())
    clock.advance(60_000)
    assert view.is_trusted and config_health(view).startswith("no contact to the configuration store for 60 s")
    with pytest.raises(AuthenticationError, match="credential rejected"):
        verifier.verify(credential)
    clock.advance(1_000)
    assert not view.is_trusted and "credentials are refused" in config_health(view)
    before = view.generation
    with pytest.raises(CredentialUnchecked, match="use another proxy") as caught:
        verifier.verify(credential)
    assert caught.value.code == 203
    until(lambda: changes == [False] and view.generation > before - 1, "listeners to hear of it")
    store.set_available(True)
    until(lambda: changes[-1] and len(changes) == 2, "listeners to hear that it is new again")
    assert config_health(view) is True
    view.close()


def test_metrics_tell_age_damage_and_version(store):
    clock = FakeClock(now_ms=1_000_000)
    view = ConfigView(store, clock=clock)
    registry = CollectorRegistry()
    registry.register(ConfigMetrics(lambda: view))
    assert registry.get_sample_value("penstock_config_age_seconds") == 0
    assert registry.get_sample_value("penstock_config_version", {"kind": "topic"}) == view.version["topic"]
    store.wipe("topic")
    clock.advance(5_000)
    assert registry.get_sample_value("penstock_config_age_seconds") == 5
    assert registry.get_sample_value("penstock_config_damaged") == 1
    assert "kind=topic" in config_health(view)
    view.close()

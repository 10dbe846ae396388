"""One contract for every configuration store, here in memory and in files. On ZooKeeper: test_zookeeper_store.py."""

import base64
import itertools
import os
import threading
import time

import pytest

from common.config import buckets as layout
from common.config.errors import BucketFull, InvalidEntry, VersionConflict
from common.config.file_store import FileStore
from common.config.memory_store import MemoryConfigStore
from common.config.store import KINDS, Change
from common.config.view import ConfigView
from tests.waiting import until


class ConfigStoreContract:
    """`open_another` opens one more store on the same content, as another process would."""

    @pytest.fixture
    def opened(self):
        """Stores to close behind the test, last first."""
        stores: list = []
        yield stores
        for store in reversed(stores):
            store.close()

    @pytest.fixture
    def store(self, open_another):
        return open_another()

    def test_an_entry_comes_back_as_it_was_put(self, store):
        value = {"queues": 8, "nested": {"list": [1, None, "ü\n\t"]}}
        version = store.put("topic", "orders", value, 0)
        assert version >= 1
        assert store.get("topic", "orders") == (value, version)

    def test_a_claimed_name_belongs_to_one_process_until_it_lets_go_or_ends(self, open_another):
        first, second = open_another(), open_another()
        assert first.claim("slot/1") and first.claim("slot/1") and first.holds("slot/1")
        assert not second.claim("slot/1") and not second.holds("slot/1")
        assert second.claim("slot/2")
        first.release("slot/1")
        first.release("slot/2")  # not ours: no effect
        assert not first.holds("slot/1") and not first.claim("slot/2")
        assert second.claim("slot/1")
        second.close()
        until(lambda: first.claim("slot/1"), "the claim of a closed store ends")

    def test_a_name_that_proxies_claim_belongs_to_one_of_them_too(self, open_another):
        first, second = open_another(), open_another()
        assert first.claim("slot/1", by_proxy=True) and not second.claim("slot/1", by_proxy=True)
        first.release("slot/1")
        assert second.claim("slot/1", by_proxy=True) and second.holds("slot/1")

    def test_a_change_fails_once_another_kind_that_it_has_seen_is_another(self, open_another):
        store, other = open_another(), open_another()
        version = store.put("topic", "orders", {}, 0)
        seen = {"ended_fence": store.index("ended_fence")}
        ended = other.put_many("ended_fence", [Change("orders", {}, 0)], {"topic": other.index("topic")})
        with pytest.raises(VersionConflict, match="ended fence"):
            store.put_many("topic", [Change("orders", {"queues": 2}, version)], seen)
        assert store.get("topic", "orders") == ({}, version) and ended == [other.get("ended_fence", "orders").version]
        seen = {"ended_fence": store.index("ended_fence")}
        assert store.put_many("topic", [Change("orders", {"queues": 2}, version)], seen) > [version]
        assert store.get("topic", "orders").value == {"queues": 2}

    def test_of_two_that_have_seen_each_others_kind_one_succeeds(self, open_another):
        """Also while neither kind has an entry yet."""
        for round_ in range(20):
            stores, kinds = (open_another(), open_another()), ("topic", "ended_fence")
            seen = [{other: store.index(other)} for store, other in zip(stores, kinds[::-1], strict=True)]
            begin, failed = threading.Barrier(2), []

            def write(store, kind, seen, name=f"t{round_}", begin=begin, failed=failed):
                begin.wait()
                try:
                    store.put_many(kind, [Change(name, {}, 0)], seen)
                except VersionConflict:
                    failed.append(kind)

            threads = [threading.Thread(target=write, args=each) for each in zip(stores, kinds, seen, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(failed) == 1

    def test_the_buckets_of_a_kind_are_written_without_entries(self, store):
        version = store.put("journal", "one", {}, 0)
        store.fill("journal")
        store.fill("journal")
        assert all(store.index("journal")) and store.get("journal", "one") == ({}, version)
        assert store.put("journal", "one", {"a": 1}, version) == version + 1

    def test_an_unknown_entry_is_none(self, store):
        assert store.get("topic", "orders") is None

    def test_kinds_do_not_mix(self, store):
        store.put("topic", "orders", {}, 0)
        assert store.get("group", "orders") is None

    def test_a_put_at_the_read_version_succeeds_and_raises_it(self, store):
        first = store.put("topic", "orders", {"queues": 8}, 0)
        second = store.put("topic", "orders", {"queues": 16}, first)
        assert second > first
        assert store.get("topic", "orders") == ({"queues": 16}, second)

    def test_a_put_at_an_old_version_conflicts_and_changes_nothing(self, store):
        first = store.put("topic", "orders", {"queues": 8}, 0)
        second = store.put("topic", "orders", {"queues": 16}, first)
        with pytest.raises(VersionConflict) as caught:
            store.put("topic", "orders", {"queues": 32}, first)
        assert (caught.value.expected, caught.value.found) == (first, second)
        assert store.get("topic", "orders") == ({"queues": 16}, second)

    def test_creating_what_exists_conflicts(self, store):
        store.put("topic", "orders", {}, 0)
        with pytest.raises(VersionConflict, match="exists already"):
            store.put("topic", "orders", {}, 0)

    def test_changing_what_does_not_exist_conflicts(self, store):
        with pytest.raises(VersionConflict, match="does not exist"):
            store.put("topic", "orders", {}, 3)

    def test_a_deleted_entry_is_gone_and_its_version_is_never_used_again(self, store):
        first = store.put("topic", "orders", {}, 0)
        store.delete("topic", "orders", first)
        assert store.get("topic", "orders") is None
        assert store.put("topic", "orders", {}, 0) > first

    def test_deleting_at_an_old_version_conflicts(self, store):
        first = store.put("topic", "orders", {}, 0)
        store.put("topic", "orders", {"queues": 2}, first)
        with pytest.raises(VersionConflict):
            store.delete("topic", "orders", first)

    def test_names_are_sorted_paged_and_searched_by_prefix(self, store):
        names = [f"orders-{i:03d}" for i in range(30)]
        store.put_many("topic", [Change(name, {}, 0) for name in [*names, "payments"]])
        assert store.names("topic") == [*names, "payments"]
        assert store.names("topic", prefix="orders-", after="orders-009", limit=5) == names[10:15]
        assert store.names("topic", prefix="nothing") == []

    def test_names_are_counted_by_prefix_and_found_taken_in_the_order_asked(self, store):
        store.put_many("topic", [Change(name, {}, 0) for name in ("b", "a", "ab", "c")])
        assert (store.count("topic"), store.count("topic", "a"), store.count("group")) == (4, 2, 0)
        assert store.taken("topic", ["x", "c", "a", "y"]) == ["c", "a"]

    def test_a_family_is_an_entry_of_its_own_kind(self, store, open_another):
        view = ConfigView(open_another())
        try:
            store.put("family", "m.*", {"queues": 3}, 0)
            until(lambda: view.topic("m.a"), "the family")
            assert (view.topic("m.a").queues, store.names("topic")) == (3, [])
        finally:
            view.close()

    def test_entries_carry_values_and_versions(self, store):
        version = store.put("topic", "orders", {"queues": 3}, 0)
        assert store.entries("topic") == [("orders", ({"queues": 3}, version))]

    def test_put_many_answers_in_the_order_asked(self, store):
        changes = [Change(f"t{i}", {"i": i}, 0) for i in range(100)]
        versions = store.put_many("topic", changes)
        assert [store.get("topic", change.name) for change in changes] == [
            (change.value, version) for change, version in zip(changes, versions, strict=True)
        ]

    def test_put_many_with_one_conflict_writes_nothing(self, store):
        store.put("topic", "t5", {}, 0)
        with pytest.raises(VersionConflict):
            store.put_many("topic", [Change(f"t{i}", {}, 0) for i in range(10)])
        assert store.names("topic") == ["t5"]

    def test_a_name_twice_in_one_change_is_refused(self, store):
        with pytest.raises(InvalidEntry, match="twice"):
            store.put_many("topic", [Change("a", {}, 0), Change("a", {}, 0)])

    @pytest.mark.parametrize("name", ["", "with space", "tab\there", "line\nbreak", "é", "x" * 250])
    def test_a_name_that_the_format_cannot_hold_is_refused(self, store, name):
        with pytest.raises(InvalidEntry):
            store.put("topic", name, {}, 0)

    def test_a_value_that_is_too_big_is_refused(self, store):
        with pytest.raises(InvalidEntry, match="65,536"):
            store.put("topic", "orders", {"text": "x" * 70_000}, 0)

    def test_a_bucket_beyond_the_limit_is_refused_and_stays_as_it_was(self, store):
        numbers = (f"t{i}" for i in itertools.count())
        names = list(
            itertools.islice((name for name in numbers if layout.bucket_of(name, KINDS["setting"].buckets) == 3), 25)
        )
        noise = {name: {"text": base64.b64encode(os.urandom(45_000)).decode()} for name in names}
        with pytest.raises(BucketFull, match="900,000"):
            store.put_many("setting", [Change(name, noise[name], 0) for name in names])
        assert store.names("setting") == []
        store.put_many("setting", [Change(name, noise[name], 0) for name in names[:15]])
        assert store.names("setting") == sorted(names[:15])

    def test_a_journal_kind_drops_its_oldest_names(self, store):
        count = KINDS["audit"].buckets * KINDS["audit"].bucket_entries_max + 2_000
        store.put_many("audit", [Change(f"{i:06d}", {}, 0) for i in range(count)])
        left = store.names("audit", limit=count)
        assert len(left) < count
        assert left[-1] == f"{count - 1:06d}"

    def test_another_store_sees_what_was_put(self, store, open_another):
        other = open_another()
        version = store.put("topic", "orders", {"queues": 8}, 0)
        assert other.get("topic", "orders") == ({"queues": 8}, version)
        assert other.put("topic", "orders", {"queues": 9}, version) > version
        assert store.get("topic", "orders").value == {"queues": 9}

    def test_writers_that_race_on_one_entry_lose_no_update(self, open_another):
        def count_up(store):
            for _ in range(10):
                while True:
                    found = store.get("setting", "counter")
                    try:
                        store.put("setting", "counter", {"n": found.value["n"] + 1}, found.version)
                        break
                    except VersionConflict:
                        continue

        stores = [open_another() for _ in range(3)]
        stores[0].put("setting", "counter", {"n": 0}, 0)
        threads = [threading.Thread(target=count_up, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stores[0].get("setting", "counter").value == {"n": 30}

    def test_writers_of_different_entries_do_not_conflict(self, open_another):
        def put_all(store, mark):
            for i in range(15):
                store.put("topic", f"{mark}-{i:02d}", {}, 0)

        threads = [threading.Thread(target=put_all, args=(open_another(), mark)) for mark in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(open_another().names("topic")) == 45

    def test_a_watcher_hears_of_another_stores_change_within_a_second(self, store, open_another):
        heard = []
        other = open_another()
        other.watch(heard.append)
        until(lambda: self.quiet(heard), "the first round of news")
        heard.clear()
        began = time.monotonic()
        store.put("group", "readers", {}, 0)
        until(lambda: "group" in heard, "the change of kind group")
        assert time.monotonic() - began < 1.0
        assert "topic" not in heard

    @staticmethod
    def quiet(heard) -> bool:
        """Stores may tell all kinds once after watch(); wait for that."""
        return set(heard) >= set(KINDS)

    def test_quick_changes_are_never_missed(self, store, open_another):
        view = ConfigView(open_another())
        try:
            version = 0
            for i in range(50):
                version = store.put("topic", "orders", {"queues": i + 1}, version)
            until(lambda: view.topic("orders") and view.topic("orders").queues == 50, "the last of 50 changes")
        finally:
            view.close()

    def test_the_index_grows_with_each_change_and_only_where_it_was(self, store):
        before = store.index("topic")
        store.put("topic", "orders", {}, 0)
        after = store.index("topic")
        changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        assert changed == [layout.bucket_of("orders", len(after))]
        assert store.version()["topic"] == sum(after) == 1

    def test_buckets_are_the_same_bytes_in_every_store(self, store):
        store.put("topic", "orders", {"queues": 8}, 0)
        number = layout.bucket_of("orders", len(store.index("topic")))
        written, empty = store.buckets("topic", [number, (number + 1) % 256])
        assert layout.unpack(written, "") == b'\norders\t1\t{"queues":8}\n'
        assert empty == b""

    def test_applied_versions_are_those_of_the_living(self, store, open_another):
        other = open_another()
        store.report_applied("proxy/127.0.0.1:9001", {"topic": 3})
        other.report_applied("engine", {"topic": 1})
        other.report_applied("engine", {"topic": 2})
        seen = {process: report.version for process, report in store.applied().items()}
        assert seen == {"proxy/127.0.0.1:9001": {"topic": 3}, "engine": {"topic": 2}}
        other.close()
        until(lambda: store.applied().keys() == {"proxy/127.0.0.1:9001"}, "the closed store's report to go")

    def test_a_store_gets_its_identity_with_its_first_entry_and_keeps_it(self, open_another):
        store, other = open_another(), open_another()
        assert store.identity() is None
        store.put("topic", "orders", {}, 0)
        identity = store.identity()
        assert len(identity.cluster) == 16 and identity.generation == 0
        other.put("topic", "other", {}, 0)
        assert other.identity() == identity
        other.set_identity(identity._replace(generation=5))
        assert store.identity() == (identity.cluster, 5)

    def test_an_index_is_made_again_from_the_buckets(self, open_another):
        store = open_another()
        store.put_many("topic", [Change(f"t{number}", {}, 0) for number in range(30)])
        before = store.index("topic")
        revisions = [layout.revision_of(store.found_buckets("topic").get(number, b"")) for number in range(256)]
        store.set_index("topic", revisions)
        assert list(before) == list(store.index("topic")) == revisions
        assert open_another().count("topic") == 30

    def test_a_deletion_leaves_its_record_and_nothing_else(self, store):
        store.delete("topic", "orders", store.put("topic", "orders", {}, 0))
        assert (store.get("topic", "orders"), store.names("topic"), store.count("topic")) == (None, [], 0)
        assert store.taken("topic", ["orders"]) == []
        (text,) = [layout.unpack(payload, "") for payload in store.found_buckets("topic").values()]
        assert layout.is_deleted(text, "orders") and layout.deletions_of(text) == ["orders"]
        store.put("topic", "orders", {}, 0)
        (text,) = [layout.unpack(payload, "") for payload in store.found_buckets("topic").values()]
        assert not layout.is_deleted(text, "orders") and store.names("topic") == ["orders"]

    def test_100000_topics_are_created_well_within_a_minute(self, store):
        began = time.monotonic()
        store.put_many(
            "topic", [Change(f"bulk.topic-{i:06d}", {"queues": 8, "durability": "memory"}, 0) for i in range(100_000)]
        )
        assert time.monotonic() - began < 60
        assert store.names("topic", prefix="bulk.", after="bulk.topic-099998") == ["bulk.topic-099999"]


class TestMemoryConfigStore(ConfigStoreContract):
    @pytest.fixture
    def open_another(self, opened):
        def open_store():
            opened.append(opened[0].peer() if opened else MemoryConfigStore())
            return opened[-1]

        return open_store

    @staticmethod
    def quiet(heard) -> bool:
        return True


class TestFileStore(ConfigStoreContract):
    @pytest.fixture
    def open_another(self, opened, tmp_path):
        def open_store():
            opened.append(FileStore(tmp_path / "config"))
            return opened[-1]

        return open_store

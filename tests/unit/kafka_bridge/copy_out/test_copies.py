"""The copies of a bridge follow the configuration, and one bridge alone runs each."""

import pytest

from common.config import ConfigView
from common.config.memory_store import MemoryConfigStore
from common.kafka.errors import ClusterUnreachable
from kafka_bridge.copy_out import copies
from kafka_bridge.copy_out.copies import OutCopies
from tests.waiting import until


class IdleCopier:
    """Runs until it is stopped, and copies nothing."""

    def __init__(self, copy, cluster):
        self.copy, self.cluster, self.standing = copy, cluster, ""
        self.is_running = True

    def stop(self):
        self.is_running = False

    def join(self, timeout_s):
        return True


class CopiesDesk:
    """A bridge's copies over a store in memory."""

    def __init__(self, store):
        self.store, self.made, self.fault = store, [], None
        self.view = ConfigView(store)
        self.copies = OutCopies(self.view, store, self._make)

    def _make(self, copy, cluster):
        if self.fault is not None:
            raise self.fault
        self.made.append(IdleCopier(copy, cluster))
        return self.made[-1]

    def running(self):
        return sorted(each.copy.name for each in self.made if each.is_running)

    def close(self):
        self.copies.close()
        self.view.close()


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(copies, "LOOK_S", 0.02)
    made = MemoryConfigStore()
    made.put("kafka", "main", {"bootstrap": "k:9092"}, 0)
    return made


@pytest.fixture
def desks(store):
    made = []

    def open_desk():
        made.append(CopiesDesk(store.peer()))
        return made[-1]

    yield open_desk
    for each in made:
        each.close()


def test_a_copier_runs_for_each_entry_from_its_making_to_its_deletion(store, desks):
    desk = desks()
    version = store.put("copy_out", "orders", {"cluster": "main"}, 0)
    store.put("copy_out", "pay", {"cluster": "main"}, 0)
    until(lambda: desk.running() == ["orders", "pay"], "both copiers")
    store.delete("copy_out", "orders", version)
    until(lambda: desk.running() == ["pay"], "the end of one")
    assert desk.copies.health() == {"copy_out pay": True}


def test_a_copy_whose_cluster_is_not_in_the_configuration_waits_for_it(store, desks):
    desk = desks()
    store.put("copy_out", "orders", {"cluster": "other"}, 0)
    store.put("copy_out", "pay", {"cluster": "main"}, 0)
    until(lambda: desk.running() == ["pay"], "the copier of the known cluster")
    store.put("kafka", "other", {"bootstrap": "o:9092"}, 0)
    until(lambda: desk.running() == ["orders", "pay"], "the other one")


def test_another_definition_of_the_cluster_makes_another_copier(store, desks):
    desk = desks()
    version = store.put("kafka", "second", {"bootstrap": "a:1"}, 0)
    store.put("copy_out", "orders", {"cluster": "second"}, 0)
    until(lambda: desk.running() == ["orders"], "the copier")
    store.put("kafka", "second", {"bootstrap": "b:1"}, version)
    until(lambda: len(desk.made) == 2 and desk.running() == ["orders"], "the next copier")
    assert [each.cluster.bootstrap for each in desk.made] == ["a:1", "b:1"]


def test_one_of_two_bridges_runs_a_copy_and_the_other_one_after_it(store, desks):
    first = desks()
    store.put("copy_out", "orders", {"cluster": "main"}, 0)
    until(lambda: first.running() == ["orders"], "the copier")
    second = desks()
    store.put("copy_out", "pay", {"cluster": "main"}, 0)
    until(lambda: "pay" in first.running() + second.running(), "news have come")
    assert "orders" not in second.running()
    first.copies.close()
    until(lambda: second.running() == ["orders", "pay"], "the second bridge's copiers")


def test_a_copier_that_cannot_be_made_is_a_note_and_tried_again(store, desks):
    desk = desks()
    desk.fault = ClusterUnreachable("no password file")
    store.put("copy_out", "orders", {"cluster": "main"}, 0)
    health = until(desk.copies.health, "the fault")
    assert "copy_out=orders: no password file" in str(health["copy_out orders"])
    desk.fault = None
    until(lambda: desk.running() == ["orders"], "the copier")

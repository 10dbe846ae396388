"""Copies to one cluster take turns: few of them at a time, whatever their number, and no thread without something to do."""

import threading

import pytest

from common.config import ConfigView
from common.config.definitions import KafkaClusterDefinition
from common.config.definitions.copies import CopyOutDefinition
from common.config.memory_store import MemoryConfigStore
from common.kafka.drivers import installed
from kafka_bridge.copy_out import turns
from kafka_bridge.copy_out.opening import CopierMaker
from kafka_bridge.copy_out.turns import CopyTurns
from tests.services import require
from tests.waiting import until

COPIES, TURNS = 200, 3


class PlayedCopier:
    """Has something to copy until it had so many turns; a turn ends when the test lets it."""

    def __init__(self, stage, count=TURNS) -> None:
        self.stage, self.left = stage, count
        self.is_stopping, self.ended = False, threading.Event()
        self.due_s, self.on_stop = 0.0, lambda: None

    def wait_for_turn(self):
        pass

    def take_turn(self, clients, is_awaited):
        with self.stage.changing:
            self.stage.running += 1
            self.stage.most = max(self.stage.most, self.stage.running)
        self.stage.goes_on.wait(30)
        with self.stage.changing:
            self.stage.running -= 1
            self.left -= 1
            self.stage.was_awaited |= is_awaited()

    def stop(self):
        self.is_stopping = True
        self.on_stop()


class Stage:
    """The copies of one cluster. Attributes: running, most: turns now, and the most at a time."""

    def __init__(self) -> None:
        self.changing, self.goes_on = threading.Lock(), threading.Event()
        self.running = self.most = 0
        self.was_awaited = False
        self.turns = CopyTurns("main", None, None, lambda: self)

    def moved(self, copiers):
        return [each for each in copiers if each.left > 0]

    def close(self):
        pass


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(turns, "LOOK_S", 0.01)
    monkeypatch.setattr(turns, "IDLE_S", 0.1)


def test_threads_of_copies_to_kafka_are_bounded_whatever_their_number_and_end_when_all_is_copied():
    before, stage = threading.active_count(), Stage()
    copiers = [PlayedCopier(stage) for _ in range(COPIES)]
    for each in copiers:
        stage.turns.add(each)
    until(lambda: stage.running == turns.PRODUCERS_MAX, "all turns to be taken")
    assert threading.active_count() - before == turns.PRODUCERS_MAX + 1, "and the thread that asks the engine"
    stage.goes_on.set()
    until(lambda: not any(each.left for each in copiers), "the turns of all", 20.0)
    assert stage.most == turns.PRODUCERS_MAX and stage.was_awaited
    until(lambda: threading.active_count() - before == 1, "the threads of turns to end")
    for each in copiers:
        each.stop()
    until(lambda: threading.active_count() == before, "the last thread to end")
    assert all(each.ended.is_set() for each in copiers)


def test_a_copy_ends_that_waits_for_its_turn_and_one_that_has_it_ends_after_it():
    stage = Stage()
    copiers = [PlayedCopier(stage) for _ in range(turns.PRODUCERS_MAX + 1)]
    for each in copiers:
        stage.turns.add(each)
    until(lambda: stage.running == turns.PRODUCERS_MAX, "all turns to be taken")
    for each in copiers:
        each.stop()
    until(lambda: sum(each.ended.is_set() for each in copiers) == 1, "the one without a turn to end")
    stage.goes_on.set()
    until(lambda: all(each.ended.is_set() for each in copiers), "the others to end")


def test_a_copy_after_the_last_one_has_ended_has_its_turn():
    stage = Stage()
    stage.goes_on.set()
    for _ in range(3):
        copier = PlayedCopier(stage, 1)
        stage.turns.add(copier)
        until(lambda copier=copier: not copier.left, "its turn")
        copier.stop()
        until(copier.ended.is_set, "its end")


def test_copies_of_one_cluster_share_its_producers(monkeypatch):
    require(installed(), "pip install kafka-python")
    view, added = ConfigView(MemoryConfigStore()), []
    monkeypatch.setattr(CopyTurns, "add", lambda of, copier: added.append((of, copier.copy.name)))
    monkeypatch.setattr(CopyTurns, "is_empty", False)
    maker = CopierMaker(view, dict, None)
    for cluster in (KafkaClusterDefinition(name, bootstrap="k:9092") for name in ("main", "main", "other")):
        maker.make(CopyOutDefinition(f"t{len(added)}", cluster=cluster.name), cluster)
    view.close()
    assert [name for _, name in added] == ["t0", "t1", "t2"]
    assert added[0][0] is added[1][0] and added[2][0] is not added[0][0]

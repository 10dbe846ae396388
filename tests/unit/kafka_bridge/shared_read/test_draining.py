"""The drain rule: when the engine's side begins for a group with an order."""

from types import SimpleNamespace

import pytest

from common.config.definitions import CutRecord, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.kafka.records import Partition
from engine.client.backlog import QueueBacklog
from kafka_bridge.copy_in.plan import CopyPlan, KafkaMembership
from kafka_bridge.shared_read.draining import note_drained

HIDDEN = "_kafka.g.orders"
ENTRY = {"group": "g", "topic": "orders", "cluster": "main", "queues": 2}
CUT = CutRecord("shop", 1, 5, "main", "id", (10, 4), (0, 0))


class Drain:
    """Attributes: committed, starts: by partition; backlog: messages that the group has to acknowledge."""

    def __init__(self) -> None:
        self.store = MemoryConfigStore()
        self.store.put("shared_read", HIDDEN, ENTRY, 0)
        self.put_topic(home="engine", cut=CUT)
        self.committed, self.starts, self.backlog = {0: 10, 1: 4}, {0: 0, 1: 0}, 0
        membership = KafkaMembership("g", "orders", True, False)
        self.plan = CopyPlan(HIDDEN, HIDDEN, 2, SimpleNamespace(name="main"), "orders", membership=membership)

    groups = frozenset(("main",))

    def put_topic(self, **fields) -> None:
        found = self.store.get("topic", "orders")
        definition = TopicDefinition("orders", queues=2, id_window_ms=0, **fields)
        self.store.put("topic", "orders", definition.to_value(), found.version if found else 0)

    def group_offsets(self, group):
        return {Partition("orders", number): at for number, at in self.committed.items()}

    def offsets(self, partitions, at):
        return {each: self.starts[each.number] for each in partitions}

    def lags(self, home, group):
        return [QueueBacklog(0, 0), QueueBacklog(self.backlog, 0)]

    def note(self) -> bool:
        noted = note_drained(self.store, self.plan, self, self)
        assert noted is bool(noted and self.store.get("shared_read", HIDDEN).value["is_drained"])
        return noted


@pytest.fixture
def drain():
    return Drain()


def test_it_is_drained_when_all_is_read_to_the_cut_and_acknowledged_and_it_is_marked_once(drain):
    assert drain.note() and not drain.note()


@pytest.mark.parametrize("committed", [{0: 9, 1: 4}, {0: 10}, {}])
def test_it_is_not_while_a_partition_is_not_read_to_the_cut(drain, committed):
    drain.committed = committed
    assert not drain.note()


def test_a_partition_that_kafka_has_emptied_needs_no_position(drain):
    drain.committed, drain.starts = {0: 12}, {0: 0, 1: 4}
    assert drain.note()


def test_it_is_not_while_a_message_is_not_acknowledged(drain):
    drain.backlog = 1
    assert not drain.note()


@pytest.mark.parametrize(
    "fields",
    [{"home": "kafka:main"}, {"home": "kafka:main", "cut": CUT}, {}, {"cut": CutRecord("s", 1, 5, "b", "i", (), ())}],
)
def test_it_is_not_before_the_topic_is_cut(drain, fields):
    drain.put_topic(**fields)
    assert not drain.note()

"""Retention of topics as the configuration has it."""

from types import SimpleNamespace

import pytest

from common.config import ConfigView
from common.config.definitions import FamilyDefinition, GroupDefinition, SharedReadDefinition, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from engine.log.read.retentions import OWN, Retention
from engine.server.policy.topic_retention import ConfiguredRetention


class Follower:
    """A configuration in memory, and its view, which shows each change."""

    def __init__(self) -> None:
        self.store = MemoryConfigStore()
        self.view = ConfigView(self.store)
        self.policy = ConfiguredRetention(self, is_configured=True)

    def put(self, definition) -> None:
        self.put_value(definition.kind, definition.name, definition.to_value())

    def put_value(self, kind: str, name: str, value) -> None:
        known = self.store.get(kind, name)
        self.store.put(kind, name, value, known.version if known else 0)

    def delete(self, kind: str, name: str) -> None:
        self.store.delete(kind, name, self.store.get(kind, name).version)


@pytest.fixture
def follower():
    found = Follower()
    yield found
    found.view.close()


def test_nothing_is_known_until_a_configured_store_has_been_read():
    follower = SimpleNamespace(view=None)
    assert ConfiguredRetention(follower, is_configured=False).is_known
    assert ConfiguredRetention(follower, is_configured=False).of("orders") == Retention(0, 0)
    policy = ConfiguredRetention(follower, is_configured=True)
    assert not policy.is_known
    assert policy.of("orders") is None


def test_a_topics_own_definition_counts_more_than_that_of_its_family(follower):
    follower.put(FamilyDefinition("ord*", retention_ms=9))
    assert follower.policy.of("orders") == Retention(9, 0, 3, "ord")
    generation = follower.policy.generation
    follower.put(TopicDefinition("orders", retention_ms=5, retention_bytes=7))
    assert follower.policy.generation > generation
    assert follower.policy.of("orders") == Retention(5, 7, OWN, None)
    follower.delete("topic", "orders")
    assert follower.policy.of("orders") == Retention(9, 0, OWN, "ord")


def test_a_topic_whose_definition_is_missing_is_unknown_unless_it_was_deleted(follower):
    assert follower.policy.of("orders") is None
    follower.put(TopicDefinition("orders", retention_ms=5))
    follower.delete("topic", "orders")
    assert follower.policy.of("orders") == Retention()


def test_a_topic_whose_entry_is_of_a_later_version_is_unknown(follower):
    follower.put_value("topic", "orders", {"queues": "as many as needed"})
    assert follower.policy.of("orders") is None


def test_dead_letters_have_the_retention_of_their_group_which_needs_no_definition(follower):
    assert follower.policy.of("_dlq.readers") == Retention(rank=0)
    follower.put(GroupDefinition("readers", dead_letter_retention_ms=8))
    assert follower.policy.of("_dlq.readers") == Retention(8, 0)
    follower.delete("group", "readers")
    assert follower.policy.of("_dlq.readers") == Retention()
    follower.put_value("group", "later", {"attempts_max": "many"})
    assert follower.policy.of("_dlq.later") is None


def test_a_hidden_topic_has_the_retention_of_the_topic_that_is_pulled(follower):
    hidden = "_kafka.billing.orders"
    assert follower.policy.of(hidden) is None, "nothing of it may be deleted"
    follower.put(SharedReadDefinition(hidden, group="billing", topic="orders", cluster="main"))
    assert follower.policy.of(hidden) is None
    follower.put(TopicDefinition("orders", retention_ms=5, retention_bytes=7))
    assert follower.policy.of(hidden) == Retention(5, 7)
    follower.delete("shared_read", hidden)
    assert follower.policy.of(hidden) == Retention(0, 0)


def test_a_queue_keeps_its_share_when_the_broker_groups_of_its_topic_change(follower):
    """The engine divides by all queues: with fewer bytes each, those that are only read would lose what waits."""
    topic = TopicDefinition("orders", 8, retention_bytes=800)
    follower.put(topic)
    assert follower.policy.of("orders").size_bytes / 8 == 100
    for queues in (16, 24):
        groups = ["a" if queues == 16 else "b"]
        topic = TopicDefinition.from_value("orders", topic.complete({**topic.to_value(), "broker_groups": groups}))
        follower.put(topic)
        assert (topic.queues, follower.policy.of("orders").size_bytes / queues) == (queues, 100)

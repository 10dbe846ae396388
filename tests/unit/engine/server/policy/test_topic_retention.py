"""Retention of topics as the configuration has it."""

from types import SimpleNamespace

from common.config.definitions import TopicDefinition
from engine.log.read.start_offsets import Retention
from engine.server.policy.topic_retention import ConfiguredRetention


def test_nothing_is_known_until_a_configured_store_has_been_read():
    follower = SimpleNamespace(view=None)
    assert ConfiguredRetention(follower, is_configured=False).is_known
    policy = ConfiguredRetention(follower, is_configured=True)
    assert not policy.is_known
    assert policy.of("orders") == Retention(0, 0)
    topics = {"orders": TopicDefinition("orders", retention_ms=5, retention_bytes=7)}
    follower.view = SimpleNamespace(topic=topics.get, generation=3)
    assert policy.is_known
    assert policy.generation == 3
    assert policy.of("orders") == Retention(5, 7)
    assert policy.of("unknown") == Retention(0, 0)

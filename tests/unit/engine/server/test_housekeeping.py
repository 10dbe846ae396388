"""The log's work by the clock: what the configuration says of topics, and that a fault does not end it."""

from types import SimpleNamespace

import gevent

from common.config.definitions import TopicDefinition
from engine.log.read.start_offsets import Retention
from engine.server.housekeeping import ConfiguredRetention, Housekeeping


def test_nothing_is_known_until_a_configured_store_has_been_read():
    following = SimpleNamespace(view=None)
    assert ConfiguredRetention(following, is_configured=False).is_known
    policy = ConfiguredRetention(following, is_configured=True)
    assert not policy.is_known
    assert policy.of("orders") == Retention(0, 0)
    topics = {"orders": TopicDefinition("orders", retention_ms=5, retention_bytes=7)}
    following.view = SimpleNamespace(topic=topics.get, generation=3)
    assert policy.is_known
    assert policy.generation == 3
    assert policy.of("orders") == Retention(5, 7)
    assert policy.of("unknown") == Retention(0, 0)


def test_it_steps_again_after_as_long_as_it_is_told():
    done = gevent.event.Event()
    steps = []

    def step() -> int:
        steps.append(1)
        if len(steps) == 3:
            done.set()
        return 0

    keeping = Housekeeping(SimpleNamespace(step=step))
    assert done.wait(5)
    keeping.close()

"""Which topics a bridge copies from Kafka, as the configuration says."""

import pytest

from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView
from kafka_bridge.copy_in.plan import plans_of

AT_HOME = {"home": "kafka:main", "id_window_ms": 0}


@pytest.fixture
def plans():
    store = MemoryConfigStore()
    views = []

    def of(topics, copies=None, clusters=("main",)):
        for kind, entries in (("topic", topics), ("copy_in", copies or {})):
            for name, value in entries.items():
                store.put(kind, name, value, 0)
        for name in clusters:
            store.put("kafka", name, {"bootstrap": "localhost:9092"}, 0)
        views.append(ConfigView(store))
        return {name: (each.kafka_topic, each.cluster.name) for name, each in plans_of(views[-1]).items()}

    yield of
    for each in views:
        each.close()


def test_topics_whose_home_is_kafka_and_those_with_an_entry_are_copied(plans):
    topics = {"a": AT_HOME, "b": {}, "c": {}}
    assert plans(topics, {"b": {"cluster": "main", "kafka_topic": "old-b"}}) == {
        "a": ("a", "main"),
        "b": ("old-b", "main"),
    }


def test_an_entry_without_its_topic_or_its_cluster_asks_for_nothing(plans):
    assert plans({"a": {}}, {"a": {"cluster": "other"}, "b": {"cluster": "main"}}) == {}


def test_a_topic_that_proxies_write_to_both_sides_is_not_copied_which_would_double_it(plans):
    topics = {"a": {**AT_HOME, "secondary": "engine"}, "b": {"secondary": "kafka:main"}}
    assert plans(topics, {"b": {"cluster": "main"}}) == {}

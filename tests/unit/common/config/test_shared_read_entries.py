"""Entries of dual read, and the names that are reserved for their hidden topics."""

import pytest

from common.config.definitions import FamilyDefinition, SharedReadDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView

ENTRY = {"group": "billing", "topic": "orders", "cluster": "main"}


def test_an_entry_is_stored_and_read_again_and_its_topic_in_kafka_has_the_same_name_unless_another_is_given():
    full = {**ENTRY, "kafka_topic": "o", "queues": 3, "is_drained": True, "plan": "shop", "made_ms": 5}
    found = SharedReadDefinition.from_value("_kafka.billing.orders", full)
    assert found.to_value() == full and found.topic_of_kafka == "o"
    assert SharedReadDefinition.from_value("_kafka.billing.orders", ENTRY).topic_of_kafka == "orders"


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("_kafka.billing.orders", {"cluster": ""}, "cluster: it is missing"),
        ("_kafka.billing.orders", {"group": "a/b"}, "group: use 1–249 characters"),
        ("_kafka.billing.orders", {"topic": ""}, "topic: use 1–249 characters"),
        ("orders", {}, "the entry of this group and topic is _kafka.billing.orders"),
        ("_kafka.billing.orders", {"queues": 0}, "queues: 0"),
    ],
)
def test_a_wrong_entry_names_field_and_rule(name, change, fault):
    with pytest.raises(InvalidDefinition, match=fault):
        SharedReadDefinition.from_value(name, {**ENTRY, **change})


def test_no_topic_and_no_family_may_have_a_reserved_name():
    for kind, name in ((TopicDefinition, "_kafka.billing.orders"), (FamilyDefinition, "_kafka.*")):
        with pytest.raises(InvalidDefinition, match="reserved for what groups read from Kafka"):
            kind.from_value(name, {})


def test_a_hidden_topic_is_none_of_a_family():
    store = MemoryConfigStore()
    store.put("family", "*", {}, 0)
    view = ConfigView(store)
    try:
        assert view.topic("other") is not None and view.topic("_kafka.billing.orders") is None
    finally:
        view.close()

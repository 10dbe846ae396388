"""Copies between topics of the engine and Kafka topics: which definitions are valid, and what a view shows of them."""

import pytest

from common.config.definitions import CopyInDefinition, CopyOutDefinition
from common.config.errors import InvalidDefinition
from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView


@pytest.mark.parametrize("definition", [CopyInDefinition, CopyOutDefinition])
def test_a_copy_needs_a_cluster_and_takes_the_topics_own_name_in_kafka_unless_another_is_given(definition):
    with pytest.raises(InvalidDefinition, match="cluster: it is missing"):
        definition.from_value("orders", {})
    assert definition.from_value("orders", {"cluster": "main"}).topic_of_kafka == "orders"
    assert definition.from_value("orders", {"cluster": "main", "kafka_topic": "o"}).topic_of_kafka == "o"


def test_a_view_has_the_readable_copies_of_each_direction_by_name():
    store = MemoryConfigStore()
    for name, value in (("b", {"cluster": "main"}), ("a", {"cluster": "main"}), ("c", {"cluster": 7})):
        store.put("copy_in", name, value, 0)
    view = ConfigView(store)
    try:
        assert [each.name for each in view.all_of(CopyInDefinition)] == ["a", "b"]
        assert view.all_of(CopyOutDefinition) == []
    finally:
        view.close()

"""Which groups a bridge joins, as the configuration says, and what is not copied for all groups then."""

import pytest

from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView
from engine.client.durability import number_of
from kafka_bridge.copy_in.plan import KafkaMembership, plans_of
from kafka_bridge.shared_read.plan import shared_plans_of

HIDDEN = "_kafka.billing.orders"
ENTRY = {"group": "billing", "topic": "orders", "cluster": "main", "made_ms": 7}
AT_HOME = {"home": "kafka:main", "id_window_ms": 0, "durability": "memory"}


@pytest.fixture
def view():
    store = MemoryConfigStore()
    store.put("kafka", "main", {"bootstrap": "localhost:9092"}, 0)
    store.put("topic", "orders", AT_HOME, 0)
    store.put("topic", "pay", AT_HOME, 0)
    store.put("shared_read", HIDDEN, ENTRY, 0)
    made = ConfigView(store)
    made.store = store
    yield made
    made.close()


def test_a_dual_read_is_a_copy_into_the_hidden_topic_that_names_the_topic_and_is_synced(view):
    (plan,) = shared_plans_of(view).values()
    assert (plan.topic, plan.stored, plan.kafka_topic) == (HIDDEN, HIDDEN + "@7", "orders")
    assert plan.membership == KafkaMembership("billing", "orders", keeps_order=False, begins_at_end=False)
    assert plan.durability == number_of("fsync"), "an offset that is committed does not go back with the engine's log"


def test_the_groups_settings_decide_about_order_and_beginning(view):
    view.store.put("group", "billing", {"order": "key", "start": "latest"}, 0)
    (plan,) = shared_plans_of(view).values()
    assert plan.membership.keeps_order and plan.membership.begins_at_end


def test_a_topic_that_a_group_reads_on_both_sides_is_not_copied_for_all_groups(view):
    assert [*plans_of(view)] == ["pay"]
    view.store.delete("shared_read", HIDDEN, view.store.get("shared_read", HIDDEN).version)
    assert [*plans_of(view)] == ["orders", "pay"] and shared_plans_of(view) == {}


@pytest.mark.parametrize(("kind", "name"), [("topic", "orders"), ("kafka", "main")])
def test_an_entry_without_its_topic_or_its_cluster_asks_for_nothing(view, kind, name):
    view.store.delete(kind, name, view.store.get(kind, name).version)
    assert shared_plans_of(view) == {}

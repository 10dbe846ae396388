"""The placed topics of a configuration, as a view and a command know them; and the definition of a placed topic."""

import pytest

from common.config import ConfigView
from common.config.definitions import FamilyDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.memory_store import MemoryConfigStore
from common.config.placed_topics import stored_placed_topics
from common.placement import QueueRange, topic_hash

HASH = topic_hash(b"orders")


def moved(topic: TopicDefinition, *groups: str, **more) -> TopicDefinition:
    value = {**topic.to_value(), **more, "broker_groups": list(groups)}
    return TopicDefinition.from_value(topic.name, topic.complete(value))


@pytest.fixture
def store():
    return MemoryConfigStore()


@pytest.fixture
def view(store):
    found = ConfigView(store)
    yield found
    found.close()


def test_a_view_and_a_command_know_the_placed_topics_among_others_through_all_changes(store, view):
    store.put_many("topic", [])
    for number in range(300):
        store.put("topic", f"plain-{number}", TopicDefinition(f"plain-{number}").to_value(), 0)
    assert len(view.placed_topics) == 0
    first = TopicDefinition("orders", broker_groups=("a",))
    version = store.put("topic", "orders", first.to_value(), 0)
    assert dict(view.placed_topics) == {HASH: (QueueRange(0, ("a",)),)}
    version = store.put("topic", "orders", moved(first, "b", "c").to_value(), version)
    assert view.placed_topics.get(HASH) == (QueueRange(0, ("a",)), QueueRange(8, ("b", "c")))
    assert stored_placed_topics(store) == view.placed_topics
    assert [each.name for each in stored_placed_topics(store).topics] == ["orders"]
    store.delete("topic", "orders", version)
    assert dict(view.placed_topics) == {} == dict(stored_placed_topics(store))


def test_whoever_sees_a_new_queue_sees_where_it_lives(store, view):
    """The other way round a process would look for the queue in all groups, and put messages where nobody looks."""
    seen = []

    def look():
        topic = view.topic("orders")
        seen.append((topic.queues, len(view.placed_topics.get(HASH, ()))))

    view.on_change(look)
    topic, version = TopicDefinition("orders"), 0
    for groups in ((), ("a",), ("b",), ()):
        topic = moved(topic, *groups)
        version = store.put("topic", "orders", topic.to_value(), version)
    assert seen == [(8, 0), (16, 2), (24, 3), (32, 4)]


def test_a_change_of_groups_adds_the_queues_that_take_messages_and_keeps_all_others():
    topic = TopicDefinition("orders", 4)
    assert (topic.ranges, topic.first_queue) == ((), 0)
    second = moved(topic, "a", "b")
    assert (second.queues, second.first_queue) == (8, 4)
    assert second.ranges == (QueueRange(0, ()), QueueRange(4, ("a", "b")))
    third = moved(second, "c", queues=20)
    assert (third.queues, third.first_queue) == (20, 8)
    assert third.ranges[:2] == second.ranges and third.continues(second) and not second.continues(third)
    assert moved(third, "c") == third and moved(second, "b", "a") == second, "the order of the groups does not matter"
    assert TopicDefinition.from_value("orders", third.to_value()) == third


def test_a_topic_that_is_moved_beyond_its_largest_number_of_queues_is_refused():
    with pytest.raises(InvalidDefinition, match="queues: 12,000 is out of range"):
        moved(TopicDefinition("orders", 6_000), "a")


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"broker_groups": ["a", "a"]}, "listed twice"),
        ({"broker_groups": "a"}, "not a list"),
        ({"broker_groups": ["a"], "home": "kafka:main", "id_window_ms": 0, "durability": "memory"}, "Kafka home"),
        ({"placement": [[0, []], [4, ["a"]]]}, "its last range has to be that of broker_groups"),
        ({"broker_groups": ["a"], "placement": [[0, []], [8, ["a"]]]}, "and to have queues"),
        ({"broker_groups": ["a"], "placement": [[1, ["a"]]]}, "placement: use ranges"),
        ({"broker_groups": ["a"], "placement": [[0, []], [0, ["a"]]]}, "placement: use ranges"),
        ({"broker_groups": ["a"], "placement": [["0", ["a"]]]}, "placement: use ranges"),
        ({"broker_groups": ["a"], "placement": 7}, "placement: use ranges"),
        ({"broker_groups": ["a"], "placement": [[0, []], [4, ["a"]]], "secondary": "kafka:x"}, "has no second side"),
    ],
)
def test_a_wrong_placement_names_its_fault(value, fault):
    with pytest.raises(InvalidDefinition, match=fault):
        TopicDefinition.from_value("orders", {"queues": 8, **value})


def test_a_family_is_in_all_broker_groups():
    with pytest.raises(InvalidDefinition, match="a family is in all broker groups"):
        FamilyDefinition.from_value("orders.*", {"broker_groups": ["a"]})

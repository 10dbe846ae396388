"""Verbs that place topics on broker groups, and that steer messages away from a group."""

import pytest

from common.admin import audit, broker_group_verbs, broker_groups, declared, placing, topics, transfer
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.admin.topics import TopicSettings
from common.clock import FakeClock
from common.config.errors import InvalidDefinition, VersionConflict
from common.config.memory_store import MemoryConfigStore
from common.config.placed_topics import stored_placed_topics


@pytest.fixture
def admin():
    made = Administrator(MemoryConfigStore(), "test:alice", FakeClock())
    broker_groups.put(made.store, {name: f"127.0.0.1:970{number}" for number, name in enumerate(("a", "b", "c"))})
    return made


def placed(admin):
    topics.create(admin, ["orders"], TopicSettings(broker_groups=["a"]))
    return topics.show(admin, "orders")


def test_a_topic_is_created_in_some_groups_and_changed_later_with_an_audit_record(admin):
    topic, version = placed(admin)
    assert (topic.broker_groups, topic.queues, topic.first_queue) == (("a",), 8, 0)
    moved = topics.set_topic(admin, "orders", TopicSettings(broker_groups=["b", "c"]), version)
    assert (moved.broker_groups, moved.queues, moved.first_queue) == (("b", "c"), 16, 8)
    last = next(each for each in audit.latest(admin.store) if each["action"] == "change")
    assert (last["who"], last["names"]) == ("test:alice", ["orders"])
    assert (last["old"]["broker_groups"], last["new"]["broker_groups"]) == (["a"], ["b", "c"])
    back = topics.set_topic(admin, "orders", TopicSettings(broker_groups=[]))
    assert (back.broker_groups, back.queues, back.first_queue) == ((), 24, 16)
    assert [each.name for each in stored_placed_topics(admin.store).topics] == ["orders"]


def test_the_second_of_two_who_change_a_topics_groups_is_refused(admin):
    _, version = placed(admin)
    topics.set_topic(admin, "orders", TopicSettings(broker_groups=["b"]), version)
    with pytest.raises(VersionConflict):
        topics.set_topic(admin, "orders", TopicSettings(broker_groups=["c"]), version)
    assert topics.show(admin, "orders")[0].broker_groups == ("b",)


def test_a_group_that_does_not_exist_is_named_and_nothing_is_written(admin):
    with pytest.raises(InvalidDefinition, match='broker_groups: "x" is no broker group: use a, b or c'):
        topics.create(admin, ["orders"], TopicSettings(broker_groups=["a", "x"]))
    assert topics.list_topics(admin) == []
    placed(admin)
    with pytest.raises(InvalidDefinition, match="is no broker group"):
        topics.set_topic(admin, "orders", TopicSettings(broker_groups=["x"]))


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("copy_in", {"cluster": "main", "topic_of_kafka": "orders"}, "copied from Kafka"),
        ("migration_topic", {"plan": "p"}, "during a migration"),
    ],
)
def test_a_topic_whose_queues_are_anothers_partitions_keeps_its_groups_and_their_number(admin, kind, value, why):
    placed(admin)
    admin.store.put(kind, "orders", value, 0)
    with pytest.raises(StateConflict, match=why):
        topics.set_topic(admin, "orders", TopicSettings(broker_groups=["b"]))
    with pytest.raises(StateConflict, match=f"its queues cannot change.*{why}"):
        topics.set_topic(admin, "orders", TopicSettings(queues=16))
    with pytest.raises(StateConflict, match=f"its queues cannot change.*{why}"):
        text = "topics: {orders: {queues: 16, broker_groups: [a]}}"
        declared.apply(admin, declared.differences(admin, declared.parse(text, "file")))
    assert topics.set_topic(admin, "orders", TopicSettings(grade="high")).grade == "high"


def test_a_file_places_and_moves_a_topic_and_changes_nothing_when_it_is_applied_again(admin):
    def apply(text):
        found = declared.differences(admin, declared.parse(text, "file"))
        declared.apply(admin, found)
        return [(each.word, sorted(each.fields())) for each in found]

    first = "topics: {orders: {queues: 8, broker_groups: [a]}}"
    assert apply(first)[0][0] == "create" and apply(first) == []
    second = "topics: {orders: {queues: 8, broker_groups: [b]}}"
    assert apply(second) == [("change", ["broker_groups", "queues"])]
    assert apply(second) == []
    assert declared.export(admin)["topics"]["orders"] == {"queues": 16, "broker_groups": ["b"]}
    with pytest.raises(InvalidDefinition, match="is no broker group"):
        apply("topics: {orders: {queues: 8, broker_groups: [x]}}")


def test_an_import_of_an_older_export_leaves_every_queue_where_it_lives(admin):
    placed(admin)
    before = transfer.export(admin.store, admin.clock)
    moved = topics.set_topic(admin, "orders", TopicSettings(broker_groups=["b"]))
    transfer.apply(admin, before, transfer.differences(admin.store, before, deletes=True))
    assert topics.show(admin, "orders")[0] == moved


def test_a_group_is_spared_and_keeps_that_when_its_address_is_written_again(admin):
    assert broker_group_verbs.set_writes(admin, "a", "keyed").is_spared
    broker_groups.put(admin.store, {"a": "127.0.0.1:9999"})
    found = {each.name: each for each in broker_groups.list_groups(admin.store)}
    assert (found["a"].address, found["a"].writes, found["b"].writes) == ("127.0.0.1:9999", "keyed", "all")
    version = admin.store.get("broker_group", "a").version
    broker_group_verbs.set_writes(admin, "a", "all", version)
    with pytest.raises(VersionConflict):
        broker_group_verbs.set_writes(admin, "a", "keyed", version)
    with pytest.raises(InvalidDefinition, match="writes"):
        broker_group_verbs.set_writes(admin, "a", "none")


def test_a_group_in_which_a_topic_is_placed_is_told_also_when_the_topic_has_moved_on(admin):
    placed(admin)
    topics.set_topic(admin, "orders", TopicSettings(broker_groups=["b"]))
    for name in "ab":
        with pytest.raises(StateConflict, match="1 topics are placed in it"):
            placing.check_unused(admin, name)
    placing.check_unused(admin, "c")

"""Administration by both drivers against a real broker."""

import time
import uuid
from contextlib import closing

import pytest

from common.kafka.base import EARLIEST, END, STABLE_END, GroupListener, GroupOptions, NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed
from common.kafka.errors import KafkaRefusal
from common.kafka.records import Partition
from tests.contract.kafka.exchange import NOW
from tests.services import require
from tests.services.kafka import SCRAM_PASSWORD, SCRAM_USER
from tests.waiting import until

TOPIC_EXISTS, INVALID_PARTITIONS = 36, 37


@pytest.fixture
def admin(exchange):
    return exchange.admin()


def test_a_cluster_is_described(admin, brokers):
    described = admin.describe()
    assert len(described.cluster_id) == 22
    assert described.brokers == [(1, "127.0.0.1", brokers.ports[0], "")] and described.controller == 1


def test_topics_are_created_and_found_with_their_ids(admin, any_admin):
    names = [f"made-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    wanted = {names[0]: NewKafkaTopic(3, 1, {"retention.ms": "60000"}), names[1]: NewKafkaTopic(1, 1)}
    assert admin.create_topics(wanted) == {}
    found = until(lambda: len(there := admin.topics(names)) == 2 and there, "the topics")
    assert [(each.name, each.partitions, each.copies) for each in found.values()] == [
        (names[0], 3, 1),
        (names[1], 1, 1),
    ]
    assert found[names[0]].id.int and found[names[0]].id != found[names[1]].id
    assert found == any_admin.topics(names)
    assert admin.configs(names)[names[0]]["retention.ms"] == "60000"


def test_refused_topics_are_named_and_the_others_created(admin, new_topic):
    there, good, bad = new_topic(), f"good-{uuid.uuid4().hex[:8]}", f"bad-{uuid.uuid4().hex[:8]}"
    topics = {there: NewKafkaTopic(1, 1), good: NewKafkaTopic(1, 1), bad: NewKafkaTopic(0, 1)}
    refusals = admin.create_topics(topics)
    assert {name: refusal.number for name, refusal in refusals.items()} == {
        there: TOPIC_EXISTS,
        bad: INVALID_PARTITIONS,
    }
    assert there in str(refusals[there])
    until(lambda: good in admin.topics([good]), "the topic")


def test_all_topics_are_listed_without_internal_ones_and_unknown_names_are_left_out(admin, new_topic, any_admin):
    topic = new_topic()
    any_admin.set_group_offsets(f"g-{topic}", {Partition(topic, 0): 0})  # makes __consumer_offsets
    names = set(admin.topics())
    assert topic in names and not any(name.startswith("__") for name in names)
    assert [*admin.topics([topic, "no-such-topic"])] == [topic]


def test_configs_are_changed_one_by_one(admin, new_topic):
    topic = new_topic(retention_ms=111, max_message_bytes=222_222)
    admin.alter_configs(topic, {"retention.ms": "333"})

    def configs():
        found = admin.configs([topic])[topic]
        return found["retention.ms"], found["max.message.bytes"], found["cleanup.policy"]

    until(lambda: configs() == ("333", "222222", "delete"), "the change")
    with pytest.raises(KafkaRefusal):
        admin.alter_configs(topic, {"retention.ms": "soon"})


def test_offsets_are_found_by_start_end_and_time(admin, exchange, new_topic):
    topic = new_topic(2)
    assert exchange.send(topic, *[(0, NOW + each * 10, b"k", b"v") for each in range(5)]).all_stored
    full, empty = Partition(topic, 0), Partition(topic, 1)
    assert admin.offsets([full, empty], EARLIEST) == {full: 0, empty: 0}
    assert admin.offsets([full, empty], END) == {full: 5, empty: 0}
    assert admin.offsets([full], STABLE_END) == {full: 5}
    assert admin.offsets([full, empty], NOW + 15) == {full: 2, empty: None}
    assert admin.offsets([full], NOW + 40) == {full: 4}
    assert admin.offsets([full], NOW + 41) == {full: None}
    assert admin.offsets([], END) == {}


def test_offsets_of_an_unknown_topic_are_refused(admin):
    with pytest.raises(KafkaRefusal) as refusal:
        admin.offsets([Partition("no-such-topic", 0)], END)
    assert refusal.value.number == 3


def test_positions_of_a_group_are_set_and_read(admin, new_topic):
    topic = new_topic(2)
    group = f"group-{topic}"
    assert admin.group_offsets(group) == {}
    admin.set_group_offsets(group, {Partition(topic, 0): 5, Partition(topic, 1): 0})
    assert admin.group_offsets(group) == {Partition(topic, 0): 5, Partition(topic, 1): 0}
    admin.set_group_offsets(group, {Partition(topic, 0): 3})
    assert admin.group_offsets(group) == {Partition(topic, 0): 3, Partition(topic, 1): 0}
    assert admin.groups()[group] == "Empty"


def test_positions_of_many_groups_on_some_topics_are_found(admin, new_topic):
    topic, other = new_topic(2), new_topic()
    groups = [f"g{number}-{topic}" for number in range(12)]
    for number, group in enumerate(groups):
        admin.set_group_offsets(group, {Partition(topic, number % 2): number, Partition(other, 0): 7})
    elsewhere = f"elsewhere-{topic}"
    admin.set_group_offsets(elsewhere, {Partition(other, 0): 7})
    found = admin.committed_on([*groups, elsewhere, "no-such-group"], {topic: 2})
    assert found == {group: {Partition(topic, number % 2): number} for number, group in enumerate(groups)}
    assert admin.committed_on([], {topic: 2}) == {}


def test_topics_of_members_are_told_and_groups_that_are_gone_left_out(admin, exchange, new_topic):
    topic = new_topic()
    group = f"group-{topic}"
    options = GroupOptions(group, (topic,))
    with closing(exchange.driver.group_reader(exchange.connection, options, GroupListener())) as reader:
        until(lambda: reader.poll(0.1) or reader.positions(), "the partition", 30.0)
        assert admin.subscribed([group, "no-such-group"])[group] == {topic}
        assert admin.groups()[group] == "Stable"


def permit(brokers, *rules):
    """Change the access list of the user with a password: (group, operation, ALLOW or DENY)."""
    require("confluent-kafka" in installed(), "pip install confluent-kafka")  # it changes access lists
    from confluent_kafka import admin as hand

    of_user = hand.ResourcePatternType.LITERAL, f"User:{SCRAM_USER}", "*"
    bindings = [
        hand.AclBinding(
            hand.ResourceType.GROUP, group, *of_user, hand.AclOperation[operation], hand.AclPermissionType[permission]
        )
        for group, operation, permission in rules
    ]
    with hand.AdminClient({"bootstrap.servers": brokers.bootstrap}) as of_hand:
        for done in of_hand.create_acls(bindings).values():
            done.result(30)


@pytest.fixture
def of_user_admin(driver, brokers):
    login = KafkaConnection(
        "test", (brokers.sasl_bootstrap,), "SASL_PLAINTEXT", "SCRAM-SHA-256", SCRAM_USER, SCRAM_PASSWORD
    )
    with closing(driver.admin(login)) as made:
        yield made


def test_groups_that_a_user_sees_and_may_not_read_are_told(admin, of_user_admin, brokers, new_topic):
    groups = [f"{kind}-{new_topic()}" for kind in ("denied", "allowed")]
    for group in groups:
        admin.set_group_offsets(group, {Partition(group.partition("-")[2], 0): 0})
    permit(brokers, (groups[0], "ALL", "ALLOW"), (groups[0], "READ", "DENY"), (groups[1], "ALL", "ALLOW"))
    until(lambda: of_user_admin.not_joinable([*groups, "no-such-group"]) == groups[:1], "the access list", 30.0)


def test_a_group_that_a_user_may_not_see_is_named_with_the_permission_that_is_missing(
    admin, of_user_admin, brokers, new_topic
):  # fmt: skip
    topic = new_topic()
    group, partition = f"unseen-{topic}", Partition(topic, 0)
    admin.set_group_offsets(group, {partition: 0})
    permit(brokers, (group, "ALL", "ALLOW"))
    until(lambda: not of_user_admin.not_joinable([group]), "the access list", 30.0)
    permit(brokers, (group, "DESCRIBE", "DENY"))

    def refused(ask, *asked):
        began = time.monotonic()
        try:
            ask(*asked)
        except KafkaRefusal as refusal:
            assert time.monotonic() - began < 10.0, "far below the time after which a cluster counts as away"
            named = f"group {group}: GROUP_AUTHORIZATION_FAILED" in str(refusal) and "user DESCRIBE it" in str(refusal)
            return refusal.number == 30 and named
        return False

    until(lambda: refused(of_user_admin.not_joinable, [group]), "the access list", 30.0)
    assert refused(of_user_admin.not_joinable, ["no-such-group", group])
    assert refused(of_user_admin.committed, group, [partition])


def test_epochs_of_leaders_are_told(admin, new_topic):
    topic = new_topic(2)
    partitions = [Partition(topic, number) for number in range(2)]
    epochs = admin.leader_epochs(partitions)
    assert {*epochs} == {*partitions} and all(at is not None and at >= 0 for at in epochs.values())
    assert admin.leader_epochs(partitions) == epochs


def test_topics_and_groups_are_deleted_and_missing_ones_left_out(admin, new_topic):
    topic = new_topic()
    group = f"group-{topic}"
    admin.set_group_offsets(group, {Partition(topic, 0): 0})
    admin.delete_groups([group, "no-such-group"])
    assert group not in admin.groups()
    admin.delete_topics([topic, "no-such-topic"])
    until(lambda: not admin.topics([topic]), "the topic is gone")
    admin.delete_topics([])
    admin.delete_groups([])

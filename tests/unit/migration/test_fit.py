"""A plan against cluster and configuration, and the inventory's objections, on values."""

from dataclasses import replace
from uuid import UUID

from common.config.definitions import FamilyDefinition, TopicDefinition
from common.kafka.base import END, STABLE_END, KafkaTopic
from common.kafka.records import Partition, Records
from migration.fit import plan_faults
from migration.inventory import FoundTopic, find_groups, find_topics, notes, objections
from migration.message_sizes import body_bytes_fitting
from migration.plan import parse_plan
from migration.sampling import TopicSample

FOUND = FoundTopic("orders", "i", 3, 3, 2, "delete", -1, -1, 1_000_000, 10, 0)
HOME = {"home": "kafka:main", "id_window_ms": 0}


def plan(topics):
    return parse_plan(f"name: shop\nrecipe: mirror\ncluster: main\ntopics: {topics}\n", "plan")


def test_a_plan_that_fits_has_no_faults():
    topic = TopicDefinition("orders", queues=3, body_bytes_max=900_000, **HOME)
    assert plan_faults(plan("[orders]"), {"orders": FOUND}, {"orders": topic}, {}, {"orders": "shop"}) == []
    assert plan_faults(plan("[{name: orders, queues: 3}]"), {"orders": FOUND}, {}, {}, {}) == []


def test_the_faults_of_all_topics_are_told_with_field_and_rule():
    topics = plan("[gone, {name: orders, queues: 4}, pay, fam]")
    found = {name: replace(FOUND, name=name) for name in ("orders", "pay", "fam")}
    entries = {"pay": TopicDefinition("pay", queues=2)}
    families = {"fam": FamilyDefinition("fa*")}
    told = plan_faults(topics, found, entries, families, {"orders": "other"})
    for part in (
        'topics[0].name: "gone" is not a topic of cluster main',
        'topics[1].name: "orders" is in plan other: a topic is in one plan at most',
        'topics[1].queues: 4: "orders" has 3 partitions',
        'topics[2].queues: "pay" has 2 queues here and 3 partitions in Kafka',
        'topics[2].name: the home of "pay" is engine: a plan begins with kafka:main',
        'topics[3].name: "fam" is of family fa* in the engine',
    ):
        assert [each for each in told if each.startswith(part)], (part, told)


def test_a_topic_that_takes_larger_messages_than_kafka_is_refused_with_numbers_unless_it_is_accepted():
    large = {"orders": TopicDefinition("orders", queues=3, **HOME)}
    (told,) = plan_faults(plan("[orders]"), {"orders": FOUND}, large, {}, {})
    for part in (
        "4,194,304 bytes here",
        "max.message.bytes is 1,000,000",
        "to 930,368 or less",
        "to 4,263,936 or more",
    ):
        assert part in told
    assert plan_faults(plan("[orders]"), {"orders": FOUND}, large, {}, {}, ["message-size"]) == []
    small = {"orders": replace(FOUND, message_bytes_max=2_000)}
    (told,) = plan_faults(plan("[orders]"), small, {}, {}, {})
    assert "max.message.bytes is 2,000: a message has up to 69,632 bytes beside its body" in told
    assert plan_faults(plan("[orders]"), small, {}, {}, {}, ["message-size"]) == []


def test_a_body_that_fits_leaves_room_for_the_other_fields_and_is_never_above_the_default():
    assert [body_bytes_fitting(each) for each in (-1, 0, 2_000, 1_048_588, 100 << 20)] == [
        4 << 20, 1, 1_000, 1_048_588 - (68 << 10), 4 << 20,
    ]  # fmt: skip


def test_retention_that_may_be_too_short_for_a_copy_is_told_with_its_numbers():
    (told,) = notes(replace(FOUND, retention_ms=5_400_000, retention_bytes=1_000))
    assert told.startswith("retention is 1.5 h and 1,000 bytes per partition: raise it where a copy of 10 records")


def test_what_stands_against_a_move_is_told_in_sentences():
    bad = replace(FOUND, name="_dlq.x", cleanup="compact,delete", in_sync_min=1, partitions=3_000)
    told = " ".join(objections(bad))
    for part in (
        "begin with _dlq. are reserved",
        "cleanup.policy is compact,delete",
        "3,000 partitions",
        "is 1: a send",
    ):
        assert part in told
    assert objections(FOUND) == [] and len(objections(bad, ["lone-replica"])) == 3


def test_a_sample_tells_what_copying_bends():
    sample = TopicSample()
    headers = [(), (("a", b"1"), ("a", b"2")), (("b", None),), (("c", b"ok"),)]
    keys = [None, b"\xff", b"k", b"k"]
    sample.add(Records(Partition("t", 0), 4, range(4), [0] * 4, keys, [b"x"] * 4, headers))
    told = notes(replace(FOUND, sample=sample, unstable=2))
    assert (sample.records, sample.keyless, sample.foreign_keys, sample.bent_headers) == (4, 1, 1, 2)
    assert any("2 offsets belong to open transactions" in each for each in told) and len(told) == 3


class Kafka:
    """A cluster that counts the questions to it."""

    def __init__(self, count) -> None:
        self.names, self.asked = [f"t{number:05d}" for number in range(count)], 0

    def topics(self, names=None):
        self.asked += 1
        return {name: KafkaTopic(name, UUID(int=1), 2, 3) for name in (self.names if names is None else names)}

    def configs(self, names):
        self.asked += 1
        return {key: {"min.insync.replicas": "2", "cleanup.policy": "delete", "retention.ms": "1000"} for key in names}

    def offsets(self, partitions, at):
        self.asked += 1
        return dict.fromkeys(partitions, {END: 7, STABLE_END: 6}.get(at, 2))

    def groups(self):
        return {"g": "Stable", "idle": "Empty"}

    def committed_on(self, groups, topics):
        assert "foreign" not in topics and groups == ["g", "idle"]
        return {"g": {Partition("t00001", 0): 5}}


def test_ten_thousand_topics_cost_some_twenty_questions():
    kafka = Kafka(10_000)
    found = find_topics(kafka)
    assert len(found) == 10_000 and kafka.asked <= 20
    assert (found[0].records, found[0].unstable, found[0].retention_ms) == (10, 2, 1_000)
    assert find_topics(kafka, prefix="t0000")[-1].name == "t00009"


def test_groups_are_found_with_their_lag_in_the_topics_asked_for():
    kafka = Kafka(3)
    (group,) = find_groups(kafka, kafka, find_topics(kafka))
    assert (group.name, group.state, group.topics, group.lag) == ("g", "Stable", ("t00001",), 2)

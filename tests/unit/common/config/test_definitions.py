"""Definitions: defaults, ranges, unknown fields, secrets."""

import pytest

from common.config.checks import is_family, is_pattern
from common.config.definitions import ApplicationDefinition, FamilyDefinition, GroupDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.families import Families

KEY = {"key_id": "k1", "secret": "s" * 43, "created_at_ms": 5}


def test_an_empty_topic_has_the_documented_defaults():
    topic = TopicDefinition.from_value("orders", {})
    assert (topic.queues, topic.durability, topic.body_bytes_max) == (8, "replicated", 4 << 20)


def test_an_empty_group_has_the_documented_defaults():
    group = GroupDefinition.from_value("readers", {})
    assert (group.topics, group.invisible_ms, group.start, group.attempts_max) == ((), 30_000, "earliest", 16)


def test_all_faults_of_a_definition_come_at_once_with_field_and_range():
    with pytest.raises(InvalidDefinition) as caught:
        TopicDefinition.from_value("bad name", {"queues": 0, "durability": "disk", "body_bytes_max": "4M"})
    text = str(caught.value)
    assert len(caught.value.faults) == 4
    for part in (
        'topic "bad name": invalid name: use 1–249 characters',
        "queues: 0 is out of range: use 1 to 10,000",
        'durability: "disk" is not one of the choices: use memory, fsync, replicated or replicated_fsync',
        'body_bytes_max: "4M" is not a whole number: use 1 to 16,000,000',
    ):
        assert part in text


@pytest.mark.parametrize("kind", [TopicDefinition, FamilyDefinition])
def test_names_of_dead_letter_topics_cannot_be_defined(kind):
    with pytest.raises(InvalidDefinition, match="reserved for dead letters"):
        kind.from_value("_dlq.readers" + "*" * (kind is FamilyDefinition), {})


def test_a_family_does_not_define_dead_letter_topics():
    assert Families([("*", {}), ("_d*", {})]).topic("_dlq.readers") is None


@pytest.mark.parametrize(
    "retry",
    [[1_000, 5_000], [0], {"first_ms": 5}, {"first_ms": 1, "factor": 1.5, "max_ms": 9, "jitter": 1}],
)
def test_a_groups_back_off_is_a_list_or_grows_and_comes_back_as_it_was(retry):
    group = GroupDefinition.from_value("g", {"retry": retry})
    assert GroupDefinition.from_value("g", group.to_value()) == group


@pytest.mark.parametrize(
    "retry",
    [
        *([], [-1], [1.5], ["1"], [True], [0] * 101, [43_200_001], {}.keys(), 7, "soon", None),
        *({"factor": 0.5}, {"jitter": 2}, {"first_ms": "1"}, {"max_ms": -1}, {"unknown": 1}, {"factor": float("nan")}),
    ],
)
def test_a_back_off_against_the_rule_is_refused(retry):
    with pytest.raises(
        InvalidDefinition, match=r"retry: .* is not a back-off: use a list of 1 to 100 delays in ms, or"
    ):
        GroupDefinition.from_value("g", {"retry": retry})


def test_what_happens_after_the_last_attempt_is_chosen_with_an_order_only():
    assert GroupDefinition.from_value("g", {"order": "key", "on_failure": "park"}).on_failure == "park"
    with pytest.raises(InvalidDefinition, match='on_failure: "stop" needs an order: use skip'):
        GroupDefinition.from_value("g", {"on_failure": "stop"})
    with pytest.raises(InvalidDefinition, match='order: "sorted" is not one of the choices: use none, key or queue'):
        GroupDefinition.from_value("g", {"order": "sorted"})


@pytest.mark.parametrize("queues", [1, 10_000])
def test_queues_at_the_ends_of_the_range_are_right(queues):
    assert TopicDefinition.from_value("t", {"queues": queues}).queues == queues


@pytest.mark.parametrize("queues", [0, 10_001, -1, True, 1.0, "8", None])
def test_queues_out_of_range_or_no_number_are_refused(queues):
    with pytest.raises(InvalidDefinition, match="queues"):
        TopicDefinition.from_value("t", {"queues": queues})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250, None, 7])
def test_a_name_against_the_rule_is_refused(name):
    with pytest.raises(InvalidDefinition, match="name"):
        TopicDefinition.from_value(name, {})


@pytest.mark.parametrize("kind", [TopicDefinition, GroupDefinition, ApplicationDefinition])
def test_fields_of_another_version_are_written_back(kind):
    value = {"colour": "gold", "limit": {"bytes": 5}}
    assert kind.from_value("x", value).to_value().items() >= value.items()


def test_a_definition_comes_back_from_its_value():
    value = {
        "keys": [KEY],
        "grants": [["send", "orders*"], ["pull", "x"]],
        "pull_grants": [["topic", "orders"], ["group", "readers"], ["dead_letters", "*"]],
    }
    app = ApplicationDefinition.from_value("shop", value)
    assert len(app.grants) == 5
    assert app.to_value() == value
    assert ApplicationDefinition.from_value("shop", app.to_value()) == app


def test_three_live_keys_are_one_too_many():
    with pytest.raises(InvalidDefinition, match="at most 2"):
        ApplicationDefinition.from_value("shop", {"keys": [{**KEY, "key_id": f"k{i}"} for i in range(3)]})


def test_two_keys_of_one_id_are_refused():
    with pytest.raises(InvalidDefinition, match="same key_id"):
        ApplicationDefinition.from_value("shop", {"keys": [KEY, KEY]})


def test_a_secret_is_neither_in_repr_nor_in_faults_nor_without_secrets():
    secret = "canary-secret-canary-secret"
    app = ApplicationDefinition.from_value("shop", {"keys": [{**KEY, "secret": secret}]})
    assert secret not in repr(app) + str(app.without_secrets())
    with pytest.raises(InvalidDefinition) as caught:
        ApplicationDefinition.from_value("shop", {"keys": [{**KEY, "key_id": "", "secret": secret + " "}]})
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "grant", [["send"], ["delete", "x"], ["send", "a**"], ["pull", ""], ["send", "a*b"], ["send", 3]]
)
def test_a_wrong_grant_is_refused(grant):
    with pytest.raises(InvalidDefinition, match=r"grants\[0\]"):
        ApplicationDefinition.from_value("shop", {"grants": [grant]})


@pytest.mark.parametrize(
    "grant",
    [["topic", "_dlq.readers"], ["topic", "_dlq.*"], ["dead_letters", "g" * 213 + "*"], ["send", "x"], ["pull", "x"]],
)
def test_a_wrong_grant_to_pull_is_refused(grant):
    with pytest.raises(InvalidDefinition, match=r"pull_grants\[0\]"):
        ApplicationDefinition.from_value("shop", {"pull_grants": [grant]})


@pytest.mark.parametrize("pattern", ["orders", "orders*", "*", "a.b-c_D*", ".*"])
def test_a_pattern_is_a_name_or_a_prefix_with_a_star(pattern):
    assert is_pattern(pattern)


@pytest.mark.parametrize("name", ["*", "metrics.*", "a*", "x" * 248 + "*"])
def test_a_family_is_named_by_its_prefix_with_a_star(name):
    assert is_family(name)
    assert FamilyDefinition.from_value(name, {}).prefix == name[:-1]


@pytest.mark.parametrize("name", ["", "metrics", "a*b", "**", "a/*", "é*", "x" * 249 + "*", None])
def test_another_name_for_a_family_is_refused(name):
    assert not is_family(name)
    with pytest.raises(InvalidDefinition, match="prefix of topic names"):
        FamilyDefinition.from_value(name, {})


def test_a_familys_topic_is_as_the_family_says_in_everything():
    family = FamilyDefinition.from_value("m.*", {"queues": 3, "durability": "memory", "body_bytes_max": 5, "colour": 1})
    topic = family.topic("m.a")
    assert topic.to_value() == family.to_value()
    assert (topic.name, topic.family, TopicDefinition.from_value("m.a", {}).family) == ("m.a", "m.*", None)


def test_a_topics_own_retention_is_stored_only_where_it_is_set_and_a_familys_topics_have_it():
    assert "retention_ms" not in TopicDefinition.from_value("t", {}).to_value()
    family = FamilyDefinition.from_value("t.*", {"retention_ms": 3_600_000, "retention_bytes": 1 << 20})
    assert family.to_value().items() >= {"retention_ms": 3_600_000, "retention_bytes": 1 << 20}.items()
    assert (family.topic("t.a").retention_ms, family.topic("t.a").retention_bytes) == (3_600_000, 1 << 20)
    with pytest.raises(InvalidDefinition, match="retention_ms"):
        TopicDefinition.from_value("t", {"retention_ms": -1})


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"filter": "a ="}, "filter: at character 4: expected a property, a value or (, found the end"),
        ({"filter": 3}, "filter: 3 is not a filter: use a text"),
        (
            {"topic_filters": ["x"]},
            "topic_filters: the value is not an object: use at most 100 filter expressions, by topic",
        ),
        ({"topic_filters": {"orders": "a b"}}, "topic_filters.orders: at character 3: the filter should end here"),
        ({"topic_filters": {"a/b": "*"}}, 'topic_filters: "a/b" is not a name'),
    ],
)
def test_a_groups_filters_are_read_when_they_are_set(value, fault):
    with pytest.raises(InvalidDefinition) as refused:
        GroupDefinition.from_value("g", value)
    assert any(each.startswith(fault) for each in refused.value.faults), refused.value.faults


def test_a_groups_filters_by_topic():
    group = GroupDefinition.from_value("g", {"filter": "a = 1", "topic_filters": {"orders": "*"}})
    assert group.filters == {"orders": "*", "": "a = 1"}
    assert GroupDefinition.from_value("g", group.to_value()) == group
    assert GroupDefinition.from_value("g", {}).filters == {}

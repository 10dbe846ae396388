"""Kafka clusters and topics whose home is one of them: which definitions are valid."""

import pytest

from common.config.definitions import FamilyDefinition, KafkaClusterDefinition, TopicDefinition
from common.config.errors import InvalidDefinition

AT_HOME = {"home": "kafka:main", "id_window_ms": 0}


def test_the_home_of_a_topic_is_the_engine_unless_it_is_given_and_then_takes_no_room_in_the_store():
    assert TopicDefinition.from_value("t", {}).kafka_cluster is None
    assert "home" not in TopicDefinition.from_value("t", {"home": "engine"}).to_value()


def test_a_topic_with_a_home_in_kafka_is_stored_and_read_again():
    made = TopicDefinition.from_value("t", AT_HOME)
    assert made.kafka_cluster == "main"
    assert TopicDefinition.from_value("t", made.to_value()) == made


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"home": "kafka"}, 'home: "kafka" is not a home: use engine, or kafka: and the name of a Kafka cluster'),
        ({"home": 7}, "home: 7 is not a home: use engine, or kafka: and the name of a Kafka cluster"),
        ({"home": "kafka:a b"}, 'home: "kafka:a b" names no Kafka cluster: use 1–249 characters of'),
        ({**AT_HOME, "id_window_ms": 5}, "id_window_ms: 5: use 0 on a Kafka home, which finds no repeated ids"),
        ({**AT_HOME, "durability": "fsync"}, "durability: fsync is not possible on a Kafka home: use memory or repl"),
        ({**AT_HOME, "durability": "replicated_fsync"}, "durability: replicated_fsync is not possible on a Kafka home"),
        ({**AT_HOME, "required_groups": ["g"]}, "required_groups: leave it empty on a Kafka home"),
    ],
)
def test_what_a_kafka_home_cannot_do_is_a_fault_of_the_topics_definition(value, fault):
    with pytest.raises(InvalidDefinition) as caught:
        TopicDefinition.from_value("t", value)
    assert len(caught.value.faults) == 1 and caught.value.faults[0].startswith(fault)


@pytest.mark.parametrize("value", [{"secondary": "kafka:main"}, {**AT_HOME, "secondary": "engine"}, {"secondary": ""}])
def test_a_secondary_on_the_other_side_of_the_home_is_stored_and_read_again(value):
    made = TopicDefinition.from_value("t", value)
    assert TopicDefinition.from_value("t", made.to_value()) == made
    assert made.kafka_clusters == ({"main"} if value["secondary"] else set())
    assert ("secondary" in made.to_value()) == bool(value["secondary"])


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (
            {"secondary": "engine"},
            "secondary: engine is the topic's home already: name the other side, or leave it empty",
        ),
        ({**AT_HOME, "secondary": "kafka:main"}, "secondary: kafka:main is the topic's home already"),
        (
            {**AT_HOME, "secondary": "kafka:b"},
            "secondary: kafka:b beside kafka:main: one of both sides has to be the engine",
        ),
        ({"secondary": "kafka"}, 'secondary: "kafka" is not a home: use engine, or kafka: and the name of a Kafka'),
    ],
)
def test_a_secondary_that_is_no_other_side_is_a_fault_of_the_topics_definition(value, fault):
    with pytest.raises(InvalidDefinition) as caught:
        TopicDefinition.from_value("t", value)
    assert len(caught.value.faults) == 1 and caught.value.faults[0].startswith(fault)


def test_a_family_has_no_secondary():
    with pytest.raises(InvalidDefinition, match="secondary: a family has no second side: create its topics one by one"):
        FamilyDefinition.from_value("a.*", {"secondary": "kafka:main"})


def test_a_family_has_no_home_in_kafka():
    with pytest.raises(InvalidDefinition, match="home: a family has no home in Kafka: create its topics one by one"):
        FamilyDefinition.from_value("a.*", AT_HOME)


def test_a_cluster_is_stored_with_what_differs_from_the_defaults():
    assert KafkaClusterDefinition.from_value("main", {"bootstrap": "k:9092"}).to_value() == {"bootstrap": "k:9092"}
    login = {"security": "sasl_ssl", "user": "penstock", "password_file": "/etc/penstock/kafka.password"}
    made = KafkaClusterDefinition.from_value("main", {"bootstrap": "k:9092,l:9092", **login})
    assert KafkaClusterDefinition.from_value("main", made.to_value()) == made


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({}, "bootstrap: it is missing: use HOST:PORT, several separated by commas"),
        ({"bootstrap": "k"}, 'bootstrap: "k" is not an address: use HOST:PORT, with an IPv6 address in brackets'),
        ({"bootstrap": "k:1", "security": "sasl_ssl"}, "security: sasl_ssl needs user and password_file"),
        ({"bootstrap": "k:1", "password_file": "p"}, 'password_file: "p" is not valid: use an absolute path'),
        ({"bootstrap": "k:1", "driver": "java"}, 'driver: "java" is not one of the choices: use auto, kafka-python or'),
    ],
)
def test_a_faulty_cluster_is_refused_by_field_and_rule(value, fault):
    with pytest.raises(InvalidDefinition) as caught:
        KafkaClusterDefinition.from_value("main", value)
    assert len(caught.value.faults) == 1 and caught.value.faults[0].startswith(fault)

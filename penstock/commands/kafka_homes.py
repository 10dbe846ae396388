"""Checks of `penstock topic create --home kafka:NAME`: the cluster is asked about the topics before they are created."""

from collections.abc import Mapping, Sequence
from contextlib import closing

from common.admin import kafka_clusters
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.config.text_values import kafka_cluster_of
from common.kafka.errors import KafkaFault
from common.quoting import quoted
from kafka_bridge.connecting import connection_of, driver_of
from penstock.commands.exits import CONFLICT, NOT_FOUND, UNAVAILABLE, USAGE, CommandError

LONE_REPLICA = "lone-replica"
REPLICAS_MIN = 2
SHOWN_MAX = 5


def fit_to_kafka(
    admin: Administrator, wanted: Mapping[str, TopicSettings], settings: TopicSettings, accepted: Sequence[str]
) -> dict[str, TopicSettings]:
    """The settings of each topic with as many queues as it has partitions on its Kafka cluster.

    Args:
        accepted: what the operator accepts; LONE_REPLICA: acks=all may be the acknowledgement of one replica.
    Raises:
        CommandError: the cluster is not defined, does not answer or lacks a topic; or a topic's queues, replicas or
            clean-up do not fit.
    """
    name = kafka_cluster_of(settings.given()["home"]) or ""
    cluster, _ = kafka_clusters.show(admin, name)
    names = list(wanted)
    try:
        with closing(driver_of(cluster).admin(connection_of(cluster))) as kafka:
            topics = kafka.topics(names)
            if missing := [each for each in names if each not in topics]:
                raise CommandError(
                    f"kafka {quoted(name)}: topic {_shown(missing)}: not found: create it there", NOT_FOUND
                )
            configs = kafka.configs(names)
    except KafkaFault as fault:
        raise CommandError(str(fault), UNAVAILABLE) from fault
    if compacted := [each for each in names if "compact" in configs[each].get("cleanup.policy", "")]:
        raise CommandError(
            f"kafka {quoted(name)}: topic {_shown(compacted)}: cleanup.policy is compact, where a message without a key is "
            "invalid: such a topic cannot be a home yet",
            CONFLICT,
        )
    lone = [each for each in names if int(configs[each].get("min.insync.replicas", "1")) < REPLICAS_MIN]
    if lone and LONE_REPLICA not in accepted:
        raise CommandError(
            f"kafka {quoted(name)}: topic {_shown(lone)}: min.insync.replicas is below {REPLICAS_MIN}, so a send is OK once "
            f"a single replica has it: set it to {REPLICAS_MIN} or more, or use --accept {LONE_REPLICA}",
            CONFLICT,
        )
    return {each: _fitted(each, wanted[each], settings, topics[each].partitions) for each in names}


def _fitted(name: str, special: TopicSettings, settings: TopicSettings, partitions: int) -> TopicSettings:
    given = special.given()
    queues = given.get("queues", settings.given().get("queues", partitions))
    if queues != partitions:
        raise CommandError(
            f"topic {quoted(name)}: queues: {queues:,}: it has {partitions:,} partitions in Kafka: leave --queues out",
            USAGE,
        )
    return TopicSettings(**{**given, "queues": partitions})


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(quoted(each) for each in names[:SHOWN_MAX]) + more

"""Checks of `penstock topic create --home kafka:NAME`: the cluster is asked about the topics before they are created."""

from collections.abc import Mapping, Sequence
from contextlib import closing

from common.admin import kafka_clusters
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.config.text_values import kafka_cluster_of
from common.kafka.base import END, ClusterAdmin, KafkaTopic
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition
from common.quoting import quoted
from kafka_bridge.connecting import connection_of, driver_of
from penstock.terminal.exits import CONFLICT, NOT_FOUND, UNAVAILABLE, USAGE, CommandError
from penstock.terminal.times import parse_time

LONE_REPLICA = "lone-replica"
EARLIEST_TEXT, LATEST_TEXT = "earliest", "latest"
REPLICAS_MIN = 2
SHOWN_MAX = 5


def fit_to_kafka(
    admin: Administrator, wanted: Mapping[str, TopicSettings], settings: TopicSettings, accepted: Sequence[str],
    copy_from: str = EARLIEST_TEXT,
) -> dict[str, TopicSettings]:  # fmt: skip
    """The settings of each topic with as many queues as it has partitions on its Kafka cluster.

    Args:
        accepted: what the operator accepts; LONE_REPLICA: acks=all may be the acknowledgement of one replica.
        copy_from: earliest, latest or a time: which records pulls shall get. The offsets are asked for now, so no message
            that is sent from now on is left out.
    Raises:
        CommandError: the cluster is not defined, does not answer or lacks a topic; or a topic's queues, replicas or
            clean-up do not fit.
    """
    name = kafka_cluster_of(settings.given()["home"]) or ""
    cluster, _ = kafka_clusters.show(admin, name)
    names = list(wanted)
    at = _place(copy_from)
    try:
        with closing(driver_of(cluster).admin(connection_of(cluster))) as kafka:
            topics = kafka.topics(names)
            if missing := [each for each in names if each not in topics]:
                raise CommandError(
                    f"kafka {quoted(name)}: topic {_shown(missing)}: not found: create it there", NOT_FOUND
                )
            configs = kafka.configs(names)
            starts = {each: _offsets(kafka, topics[each], at) for each in names}
    except KafkaFault as fault:
        raise CommandError(str(fault), UNAVAILABLE) from fault
    _check_configs(name, configs, accepted)
    return {each: _fitted(each, wanted[each], settings, topics[each].partitions, starts[each]) for each in names}


def _place(copy_from: str) -> int | None:
    """Of `ClusterAdmin.offsets`; None: the first record, which the copy finds by itself."""
    if copy_from == EARLIEST_TEXT:
        return None
    try:
        return END if copy_from == LATEST_TEXT else parse_time(copy_from)
    except ValueError as rule:
        raise CommandError(f"--copy-from {copy_from}: use earliest or latest, or {rule}", USAGE) from rule


def _offsets(kafka: ClusterAdmin, topic: KafkaTopic, at: int | None) -> str:
    """The setting `copy_from`: per partition, the first offset from that place on; its end where there is none."""
    if at is None:
        return ""
    asked = [Partition(topic.name, number) for number in range(topic.partitions)]
    ends = kafka.offsets(asked, END)
    found = ends if at == END else kafka.offsets(asked, at)
    return ",".join(f"{ends[each] if found[each] is None else found[each]}" for each in asked)


def _check_configs(cluster: str, configs: Mapping[str, Mapping[str, str]], accepted: Sequence[str]) -> None:
    if compacted := [name for name, each in configs.items() if "compact" in each.get("cleanup.policy", "")]:
        raise CommandError(
            f"kafka {quoted(cluster)}: topic {_shown(compacted)}: cleanup.policy is compact, where a message without a key "
            "is invalid: such a topic cannot be a home yet",
            CONFLICT,
        )
    lone = [name for name, each in configs.items() if int(each.get("min.insync.replicas", "1")) < REPLICAS_MIN]
    if lone and LONE_REPLICA not in accepted:
        raise CommandError(
            f"kafka {quoted(cluster)}: topic {_shown(lone)}: min.insync.replicas is below {REPLICAS_MIN}, so a send is OK "
            f"once a single replica has it: set it to {REPLICAS_MIN} or more, or use --accept {LONE_REPLICA}",
            CONFLICT,
        )


def _fitted(
    name: str, special: TopicSettings, settings: TopicSettings, partitions: int, copy_from: str
) -> TopicSettings:
    given = special.given()
    queues = given.get("queues", settings.given().get("queues", partitions))
    if queues != partitions:
        raise CommandError(
            f"topic {quoted(name)}: queues: {queues:,}: it has {partitions:,} partitions in Kafka: leave --queues out",
            USAGE,
        )
    return TopicSettings(**{**given, "queues": partitions, "copy_from": copy_from or None})


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(quoted(each) for each in names[:SHOWN_MAX]) + more

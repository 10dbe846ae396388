"""Inventory of a Kafka cluster: topics and groups, and what stands against the move of a topic.

Every question is asked for many topics, or groups, at once: 10,000 topics are some 40 requests.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from common.kafka.base import EARLIEST, END, STABLE_END, ClusterAdmin, KafkaTopic
from common.kafka.group_admin import GroupAdmin
from common.kafka.records import Partition
from migration.plan import QUEUES_OF_PLAN_MAX, RESERVED_PREFIXES
from migration.sampling import TopicSample

TOPICS_PER_REQUEST, PARTITIONS_PER_REQUEST = 1_000, 10_000
REPLICAS_MIN = 2
LONE_REPLICA = "lone-replica"


@dataclass(frozen=True)
class FoundTopic:
    """
    Attributes:
        retention_ms, retention_bytes: −1: no bound.
        records: offsets between start and end; fewer where records were compacted or aborted.
        unstable: offsets between the stable end and the end: of transactions that are open.
        groups: with a committed offset, by name: how many offsets they are behind.
    """

    name: str
    id: str
    partitions: int
    copies: int
    in_sync_min: int
    cleanup: str
    retention_ms: int
    retention_bytes: int
    message_bytes_max: int
    records: int
    unstable: int
    groups: Mapping[str, int] = field(default_factory=dict)
    sample: TopicSample | None = None


@dataclass(frozen=True)
class FoundGroup:
    """Attributes: lag: over its topics, by offsets; unmoved: topics of it that the inventory was not asked for."""

    name: str
    state: str
    topics: tuple[str, ...]
    lag: int


def find_topics(
    kafka: ClusterAdmin, names: Sequence[str] | None = None, prefix: str = "", samples: Mapping[str, TopicSample] = {}
) -> list[FoundTopic]:  # fmt: skip
    """Topics by name. Without `names`, all whose names begin with `prefix`; internal ones are left out."""
    found = {name: each for name, each in kafka.topics(names).items() if name.startswith(prefix)}
    configs: dict[str, dict[str, str]] = {}
    for some in _in_parts(sorted(found), TOPICS_PER_REQUEST):
        configs |= kafka.configs(some)
    bounds = [_offsets(kafka, found, at) for at in (EARLIEST, END, STABLE_END)]
    return [_topic(found[name], configs.get(name, {}), bounds, samples.get(name)) for name in sorted(found)]


def _topic(
    topic: KafkaTopic, config: Mapping[str, str], bounds: "list[dict[Partition, int]]", sample: TopicSample | None
) -> FoundTopic:
    first, end, stable = (
        sum(at.get(Partition(topic.name, number), 0) for number in range(topic.partitions)) for at in bounds
    )
    return FoundTopic(
        topic.name, str(topic.id), topic.partitions, topic.copies, _number(config, "min.insync.replicas", 1),
        config.get("cleanup.policy") or "delete", _number(config, "retention.ms", -1),
        _number(config, "retention.bytes", -1), _number(config, "max.message.bytes", -1), end - first,
        max(0, end - stable), sample=sample,
    )  # fmt: skip


def _number(config: Mapping[str, str], name: str, default: int) -> int:
    text = config.get(name)
    return int(text) if text else default


def _offsets(kafka: ClusterAdmin, topics: Mapping[str, KafkaTopic], at: int) -> dict[Partition, int]:
    wanted = [Partition(name, number) for name, each in topics.items() for number in range(each.partitions)]
    found: dict[Partition, int] = {}
    for some in _in_parts(wanted, PARTITIONS_PER_REQUEST):
        found |= {partition: offset or 0 for partition, offset in kafka.offsets(some, at).items()}
    return found


def find_groups(kafka: ClusterAdmin, groups: GroupAdmin, topics: Sequence[FoundTopic]) -> list[FoundGroup]:
    """Groups with a committed offset in one of these topics."""
    counts = {each.name: each.partitions for each in topics}
    states = groups.groups()
    committed = groups.committed_on(sorted(states), counts)
    wanted = [each for offsets in committed.values() for each in offsets]
    ends: dict[Partition, int] = {}
    for some in _in_parts(sorted(set(wanted)), PARTITIONS_PER_REQUEST):
        ends |= {partition: offset or 0 for partition, offset in kafka.offsets(some, END).items()}
    found = []
    for group, own in committed.items():
        lag = sum(max(0, ends[each] - at) for each, at in own.items())
        found.append(FoundGroup(group, states[group], tuple(sorted({each.topic for each in own})), lag))
    return found


def objections(topic: FoundTopic, accepted: Sequence[str] = ()) -> list[str]:
    """What stands against a move of the topic, one sentence each."""
    found = []
    if prefix := next((each for each in RESERVED_PREFIXES if topic.name.startswith(each)), None):
        found.append(f"names that begin with {prefix} are reserved")
    if "compact" in topic.cleanup:
        found.append(f"cleanup.policy is {topic.cleanup}: the engine keeps every record, so it is another topic there")
    if topic.partitions > QUEUES_OF_PLAN_MAX:
        found.append(f"{topic.partitions:,} partitions: at most {QUEUES_OF_PLAN_MAX:,} can be moved")
    if topic.in_sync_min < REPLICAS_MIN and LONE_REPLICA not in accepted:
        found.append(
            f"min.insync.replicas is {topic.in_sync_min}: a send through the proxies is OK once a single replica has it: "
            f"set it to {REPLICAS_MIN} or more, or use --accept {LONE_REPLICA}"
        )
    return found


def notes(topic: FoundTopic) -> list[str]:
    """What the operator should know of the topic and what does not stand against a move."""
    found = []
    if topic.retention_ms >= 0 or topic.retention_bytes >= 0:
        bounds = [f"{topic.retention_ms / 3_600_000:,.1f} h"] * (topic.retention_ms >= 0)
        bounds += [f"{topic.retention_bytes:,} bytes per partition"] * (topic.retention_bytes >= 0)
        found.append(
            f"retention is {' and '.join(bounds)}: raise it where a copy of {topic.records:,} records, or a standstill of "
            "the copy, may take longer: the copy stops at records that are deleted before it has read them"
        )
    if topic.unstable:
        found.append(f"{topic.unstable:,} offsets belong to open transactions: the copy stops before them")
    if topic.sample is not None:
        found += topic.sample.notes()
    return found


def _in_parts(items: Sequence, size: int) -> Iterator[list]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some

"""Dual reads of a plan: the facts about its groups, and the effects on their entries in the configuration."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from common.admin import administrator as verbs
from common.admin.administrator import Administrator
from common.config.definitions import GroupDefinition, SharedReadDefinition, TopicDefinition
from common.kafka.base import EARLIEST, END, ClusterAdmin
from common.kafka.records import Partition
from common.shared_reads import hidden_topic
from migration.errors import PlanRefused
from migration.facts import GroupFacts, TopicFacts
from migration.plan import MigrationPlan

Names = tuple[str, ...]


class Backlogs(Protocol):
    """The engine's side; see EnginePositions."""

    def backlog(self, topic: str, group: str) -> int: ...


def group_facts(admin: Administrator, plan: MigrationPlan, topic: str) -> tuple[GroupFacts, ...]:
    """What the configuration says about the plan's groups at a topic."""
    found = []
    for name in plan.groups:
        entry = _entry(admin, plan, name, topic)
        group = admin.store.get(GroupDefinition.kind, name)
        has_order = group is not None and GroupDefinition.from_value(name, group.value).order != "none"
        found.append(
            GroupFacts(
                name, has_order, entry is not None, entry is not None and entry.is_ending,
                entry is not None and entry.is_drained,
            )
        )  # fmt: skip
    return tuple(found)


def _entry(admin: Administrator, plan: MigrationPlan, group: str, topic: str) -> SharedReadDefinition | None:
    """The plan's entry; None: there is none."""
    name = hidden_topic(group, topic)
    found = admin.store.get(SharedReadDefinition.kind, name)
    if found is None or found.value.get("plan") != plan.name:
        return None
    return SharedReadDefinition.from_value(name, found.value)


def with_lags(topics: Mapping[str, TopicFacts], kafka: ClusterAdmin, engine: Backlogs) -> dict[str, TopicFacts]:
    """The facts with what each group has not read, on both sides. For topics whose end offsets are known."""
    names = {each.name for topic in topics.values() for each in topic.groups}
    committed = {name: kafka.group_offsets(name) for name in names}
    partitions = [Partition(name, n) for name, topic in topics.items() for n in range(topic.partitions)]
    starts = kafka.offsets(partitions, EARLIEST) if partitions and names else {}
    return {
        name: replace(topic, groups=tuple(_lagging(each, name, topic, committed[each.name], starts, engine) for each in topic.groups))
        for name, topic in topics.items()
    }  # fmt: skip


def _lagging(
    group: GroupFacts, name: str, topic: TopicFacts, committed: Mapping[Partition, int],
    starts: Mapping[Partition, int | None], engine: Backlogs,
) -> GroupFacts:  # fmt: skip
    if not topic.stable_ends:
        return group
    places = [Partition(name, number) for number in range(topic.partitions)]
    ends = zip(places, topic.stable_ends, strict=False)
    kafka = sum(max(0, end - committed.get(each, starts[each] or 0)) for each, end in ends)
    # After the positions: what a bridge has committed is in the engine.
    waiting = engine.backlog(hidden_topic(group.name, name), group.name)
    deleted = [each for each in places if committed.get(each, starts[each] or 0) < (starts[each] or 0)]
    lost = _loss(group.name, deleted[0], committed[deleted[0]], starts[deleted[0]] or 0) if deleted else ""
    return replace(group, kafka_lag=kafka, waiting=waiting, unread=engine.backlog(name, group.name), lost=lost)


def _loss(group: str, partition: Partition, committed: int, start: int) -> str:
    topic, number = partition
    return (
        f"group {group} has read {topic} partition {number} up to offset {committed:,}, and Kafka has deleted what lies before "
        f"{start:,}: up to {start - committed:,} records are lost: give the group that offset as its position, by Kafka's own "
        "tool, while it has no members"
    )


def create(admin: Administrator, plan: MigrationPlan, names: Names, kafka: ClusterAdmin) -> None:
    """Raises PlanRefused: a dual read that is not the plan's is there, or a topic is gone in Kafka."""
    found = kafka.topics(names)
    if missing := [name for name in names if name not in found]:
        raise PlanRefused(f"kafka {plan.cluster}: topic {missing[0]}: not found any more")
    made = []
    for topic in names:
        for group in plan.groups:
            name = hidden_topic(group, topic)
            entry = admin.store.get(SharedReadDefinition.kind, name)
            if entry is None:
                queues, now_ms = found[topic].partitions, admin.clock.now_ms()
                made.append(
                    SharedReadDefinition(
                        name,
                        group=group,
                        topic=topic,
                        cluster=plan.cluster,
                        queues=queues,
                        plan=plan.name,
                        made_ms=now_ms,
                    )
                )
            elif entry.value.get("plan") != plan.name:
                raise PlanRefused(f"group {group} reads {topic} on two sides already, not by this plan: end that first")
    if made:
        verbs.create(admin, made)


def leave(admin: Administrator, plan: MigrationPlan, names: Names) -> None:
    """Have the bridges leave the groups on Kafka. What they have copied stays to be read."""
    _change(admin, plan, names, lambda old: replace(old, is_ending=True))


def arm(admin: Administrator, plan: MigrationPlan, names: Names) -> None:
    """Have groups with an order read Kafka's side alone, until it is drained to the next cut."""
    _change(admin, plan, names, lambda old: replace(old, is_drained=False))


def _change(
    admin: Administrator, plan: MigrationPlan, names: Names,
    new: Callable[[SharedReadDefinition], SharedReadDefinition],
) -> None:  # fmt: skip
    for topic in names:
        for group in plan.groups:
            if _entry(admin, plan, group, topic) is not None:
                verbs.change(admin, SharedReadDefinition, hidden_topic(group, topic), new)


def set_copy_start(admin: Administrator, names: Names, kafka: ClusterAdmin) -> None:
    """Have the copy for all groups, which begins when the dual reads end, begin at the topics' present ends in Kafka."""
    for name in names:
        found = admin.store.get(TopicDefinition.kind, name)
        if found is not None:
            topic = kafka.topics([name]).get(name)
            if topic is None:
                raise PlanRefused(f"kafka topic {name}: it does not exist (any more)")
            count = topic.partitions
            ends = kafka.offsets([Partition(name, number) for number in range(count)], END)
            at = ",".join(str(ends[Partition(name, number)] or 0) for number in range(count))
            verbs.change(admin, TopicDefinition, name, lambda old, at=at: replace(old, copy_from=at))  # type: ignore[misc]


def delete(admin: Administrator, plan: MigrationPlan, names: Names) -> None:
    """End dual reads. A topic that stays in Kafka is copied for all groups from now on."""
    for name in names:
        for group in plan.groups:
            if _entry(admin, plan, group, name) is not None:
                verbs.delete(admin, SharedReadDefinition, hidden_topic(group, name))

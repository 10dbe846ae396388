"""A plan checked against the cluster and the configuration. All faults are told at once, each with its field and rule."""

import json
from collections.abc import Mapping, Sequence

from common.config.definitions import FamilyDefinition, TopicDefinition
from common.config.text_values import ENGINE_HOME, KAFKA_HOME
from common.quoting import quoted
from migration.inventory import FoundTopic, objections
from migration.message_sizes import MESSAGE_SIZE, size_faults
from migration.plan import DOUBLE_READ, STORED_BYTES_MAX, MigrationPlan, PlannedTopic


def plan_faults(
    plan: MigrationPlan, found: Mapping[str, FoundTopic], entries: Mapping[str, TopicDefinition],
    families: Mapping[str, FamilyDefinition], held: Mapping[str, str], accepted: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Why the plan cannot be carried out; empty: nothing stands against it.

    Args:
        found: topics of the plan's cluster.
        entries, families: topics of the plan that are defined, by an entry or by a family.
        held: topics of the plan that are in a plan, by that plan's name.
    """
    faults, is_cut = _faults_of_text(plan), was_cut(plan, entries)
    for number, topic in enumerate(plan.topics):
        field, name = f"topics[{number}]", topic.name
        if held.get(name, plan.name) != plan.name:
            faults.append(f"{field}.name: {quoted(name)} is in plan {held[name]}: a topic is in one plan at most")
        if name not in found:
            faults.append(
                f"{field}.name: {quoted(name)} is not a topic of cluster {plan.cluster}: create it there first"
            )
            continue
        faults += [f"{field}: {quoted(name)}: {each}" for each in objections(found[name], accepted)]
        if plan.recipe != DOUBLE_READ and MESSAGE_SIZE not in accepted:  # double read copies nothing back
            faults += [f"{field}: {each}" for each in size_faults(found[name], entries.get(name))]
        faults += _faults_of_entry(plan, field, topic, found[name], entries.get(name), families.get(name), is_cut)
    return faults


def was_cut(plan: MigrationPlan, entries: Mapping[str, TopicDefinition]) -> bool:
    """Whether all topics have the record of a cut by a plan of this name: a configuration that was lost and restored from
    an export has no plans, but those records. The plan may then be stored again, at its cut.
    """
    if plan.recipe == DOUBLE_READ:  # its hidden topics and groups are more than these records tell
        return False
    found = [entries.get(name) for name in plan.topic_names]
    return all(
        each is not None and each.home == ENGINE_HOME and each.cut is not None
        and (each.cut.plan, each.cut.cluster) == (plan.name, plan.cluster)
        for each in found
    )  # fmt: skip


def _faults_of_text(plan: MigrationPlan) -> list[str]:
    size = len(json.dumps(plan.text))
    if size <= STORED_BYTES_MAX:
        return []
    rule = f"use at most {STORED_BYTES_MAX:,}, with fewer characters beyond ASCII, or several plans"
    return [f"the text has {size:,} bytes as it is stored: {rule}"]


def _faults_of_entry(
    plan: MigrationPlan, field: str, topic: PlannedTopic, found: FoundTopic, entry: TopicDefinition | None,
    family: FamilyDefinition | None, is_cut: bool,
) -> list[str]:  # fmt: skip
    name, faults = quoted(topic.name), []
    if topic.queues not in (None, found.partitions):
        faults.append(f"{field}.queues: {topic.queues:,}: {name} has {found.partitions:,} partitions: leave it out")
    if entry is None:
        if family is not None:
            rule = "give the topic another name, or end the family"
            faults.append(f"{field}.name: {name} is of family {family.name} in the engine: {rule}")
        return faults
    if entry.queues != found.partitions:
        faults.append(
            f"{field}.queues: {name} has {entry.queues:,} queues here and {found.partitions:,} partitions in Kafka: the "
            "numbers must be equal, so that every key stays in its queue"
        )
    if is_cut:
        return faults
    if entry.home != KAFKA_HOME + plan.cluster:
        faults.append(
            f"{field}.name: the home of {name} is {entry.home}: a plan begins with {KAFKA_HOME}{plan.cluster}"
        )
    if entry.secondary:
        faults.append(f"{field}.name: {name} is written to {entry.secondary}, too: end that first")
    return faults

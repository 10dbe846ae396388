"""A plan checked against the cluster and the configuration. All faults are told at once, each with its field and rule."""

import json
from collections.abc import Mapping, Sequence

from common.config.definitions import FamilyDefinition, TopicDefinition
from common.config.text_values import KAFKA_HOME
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
    faults = _faults_of_text(plan)
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
        faults += _faults_of_entry(plan, field, topic, found[name], entries.get(name), families.get(name))
    return faults


def _faults_of_text(plan: MigrationPlan) -> list[str]:
    size = len(json.dumps(plan.text))
    if size <= STORED_BYTES_MAX:
        return []
    rule = f"use at most {STORED_BYTES_MAX:,}, with fewer characters beyond ASCII, or several plans"
    return [f"the text has {size:,} bytes as it is stored: {rule}"]


def _faults_of_entry(
    plan: MigrationPlan, field: str, topic: PlannedTopic, found: FoundTopic, entry: TopicDefinition | None,
    family: FamilyDefinition | None,
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
    if entry.home != KAFKA_HOME + plan.cluster:
        faults.append(
            f"{field}.name: the home of {name} is {entry.home}: a plan begins with {KAFKA_HOME}{plan.cluster}"
        )
    if entry.secondary:
        faults.append(f"{field}.name: {name} is written to {entry.secondary}, too: end that first")
    return faults

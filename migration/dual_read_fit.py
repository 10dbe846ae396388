"""A plan checked against groups that read, or shall read, topics on both sides. Sentences as of `migration.fit`."""

from collections.abc import Mapping, Sequence

from common.config.definitions import GroupDefinition, SharedReadDefinition
from common.quoting import quoted
from migration.plan import DOUBLE_READ, MigrationPlan


def dual_read_faults(
    plan: MigrationPlan, defined: Sequence[str], copied: Sequence[str], groups: Mapping[str, GroupDefinition],
    shared: Sequence[SharedReadDefinition],
) -> list[str]:  # fmt: skip
    """Why dual reads stand against the plan, or the configuration against its dual reads.

    Args:
        defined: topics of the plan that are defined here.
        copied: those that have a copy from or to Kafka.
        groups: of the plan, as they are defined.
        shared: all dual reads of the configuration.
    """
    faults = []
    for number, topic in enumerate(plan.topic_names):
        field, name = f"topics[{number}].name", quoted(topic)
        foreign = [each for each in shared if each.topic == topic and each.plan != plan.name]
        if foreign:
            faults.append(
                f"{field}: group {foreign[0].group} reads {name} on both sides: with another recipe beside it, the group "
                "would get everything twice: end that dual read first"
            )
        if plan.recipe != DOUBLE_READ:
            continue
        if topic in copied:
            faults.append(f"{field}: {name} is copied: the groups would get everything twice: end the copy first")
        if topic in defined:
            faults.append(
                f"{field}: {name} is defined here already, and what groups have of it is not of one side: use the recipe "
                f"mirror, or `penstock topic delete {topic}` first"
            )
    if plan.recipe == DOUBLE_READ:
        faults += [fault for number, name in enumerate(plan.groups) for fault in _faults_of(number, groups.get(name))]
    return faults


def _faults_of(number: int, group: GroupDefinition | None) -> list[str]:
    if group is None or group.order == "none" or group.start == "earliest":
        return []
    return [
        f"groups[{number}]: {quoted(group.name)} has an order and starts at {group.start}: it would pass over what is sent "
        f"between the cut and its first pull of the engine's side: use `penstock group set {group.name} --start earliest`"
    ]

"""Obstacles to the real run of a plan, by the facts of the real deployment. Pure.

The gates are judged by the deciders of the courses themselves, so the sentences are those that an operator would get.
"""

from collections.abc import Mapping, Sequence

from migration.facts import Facts, Rules
from migration.inventory import FoundGroup, FoundTopic, notes
from migration.plan import DOUBLE_READ, DOUBLE_WRITE, MigrationPlan
from migration.recipes.course import PlanStep
from migration.states import PlanState, Refuse, Wait
from migration.sub_steps.registry import SUB_STEPS
from migration.sub_steps.sub_step import shown

GATES: Mapping[str, tuple[str, ...]] = {DOUBLE_WRITE: ("one_writer", "journals", "divergence", "delayed")}
"""Sub-steps of a recipe that judge the deployment as it is before the plan has begun."""
STABLE = "Stable"


def blockers(
    plan: MigrationPlan, faults: Sequence[str], facts: Facts | None, rules: Rules, topics: Sequence[FoundTopic],
    groups: Sequence[FoundGroup],
) -> list[str]:  # fmt: skip
    """One sentence each; empty: nothing is known that would block it.

    Args:
        faults: of the plan against cluster and configuration.
        facts: None: the real deployment could not be asked; a fault says why.
    """
    found = [*faults]
    for each in topics:
        found += [f"{each.name}: {note}" for note in notes(each)]
    moving = {each.name for each in topics}
    for group in groups:
        if group.state == STABLE and plan.recipe != DOUBLE_READ and moving & {*group.topics}:
            found.append(
                f"group {group.name} has members on Kafka and {group.lag:,} records to read: they move by `penstock "
                "migrate positions`, which needs the group without members"
            )
        if plan.recipe == DOUBLE_READ and group.name not in plan.groups:
            found.append(
                f"group {group.name} reads {shown(group.topics)} in Kafka and is not in the plan: it would get nothing of what is "
                "sent after the cut"
            )
        if plan.recipe == DOUBLE_READ and group.name in plan.groups and group.lag > rules.lag_messages:
            found.append(
                f"group {group.name} has {group.lag:,} records to read in Kafka, at most {rules.lag_messages:,} may be left "
                "when the fence is set"
            )
    if facts is None:
        return found
    if facts.late:
        found.append(f"the configuration is not applied by {shown(facts.late)}: a fence would be lifted after 5 s")
    for topic in facts.topics.values():
        found += topic.standstills
    state = PlanState(plan.name, PlanStep.COPYING, recipe=plan.recipe)
    for name in GATES.get(plan.recipe, ()):
        answer = SUB_STEPS[name].decide(state, facts, rules)
        if isinstance(answer, Refuse | Wait):
            found.append(answer.sentence)
    return found

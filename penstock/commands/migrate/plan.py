"""`penstock migrate plan`."""

from contextlib import closing
from typing import TextIO

import click

from common.admin import administrator as verbs
from common.admin import families
from common.admin.administrator import Administrator
from common.config.definitions import (
    SHARED_READS_MAX,
    CopyInDefinition,
    CopyOutDefinition,
    GroupDefinition,
    SharedReadDefinition,
    TopicDefinition,
)
from common.config.errors import InvalidDefinition
from common.quoting import thing
from migration.dual_read_fit import dual_read_faults
from migration.entries import PlanStore, marks
from migration.fit import plan_faults
from migration.inventory import LONE_REPLICA, find_topics
from migration.kafka_groups import UnnamedGroups, unnamed_groups
from migration.message_sizes import MESSAGE_SIZE
from migration.plan import DOUBLE_READ, TEXT_BYTES_MAX, MigrationPlan, parse_plan
from migration.sub_steps.sub_step import SHOWN_MAX
from penstock.commands.migrate.work import opened_kafka
from penstock.terminal.exits import Command
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import output_option, show_one
from penstock.terminal.reading import text_of


@click.command(cls=Command, name="plan")
@click.argument("file", type=click.File(encoding="utf-8", errors="replace"))
@click.option(
    "--accept", "accepted", multiple=True, type=click.Choice([LONE_REPLICA, MESSAGE_SIZE]),
    help="Take topics also where a single replica may acknowledge messages, or where Kafka may refuse a message that the "
    "engine takes; may be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check the plan, and store nothing.")
@output_option
@instance_options()
def command(
    instance: Instance, file: TextIO, accepted: tuple[str, ...], dry_run: bool, output: str
) -> None:  # fmt: skip
    """Check the plan in FILE against Kafka and the configuration, and store it. See docs/migration.md.

    All faults are told at once (exit code 2), and nothing is stored then. A plan of the same name is replaced as long as
    it has not begun, and when it has ended.
    """
    plan = parse_plan(text_of(file, TEXT_BYTES_MAX), file.name)
    with administration(instance) as admin:
        unnamed = check(admin, plan, accepted)
        if not dry_run:
            PlanStore(admin.store, admin.clock, admin.who).add(plan)
    for each in unnamed.groups[:SHOWN_MAX]:
        click.echo(f"not in the plan: {each.sentence}", err=True)
    if (more := len(unnamed.groups) - SHOWN_MAX) > 0:
        click.echo(
            f"not in the plan: {more:,} more groups: see `penstock migrate inventory {plan.cluster} --groups`", err=True
        )
    shown = {"plan": plan.name, "digest": plan.digest, "recipe": plan.recipe, "cluster": plan.cluster}
    show_one({**shown, "topics": len(plan.topics), "stored": "no" if dry_run else "yes"}, output)


def check(admin: Administrator, plan: MigrationPlan, accepted: tuple[str, ...]) -> UnnamedGroups:
    """Raises InvalidDefinition with all faults of the plan against the cluster and the configuration.

    Returns the groups that a double read leaves out, which stop its cut.
    """
    names = plan.topic_names
    unnamed = UnnamedGroups()
    with opened_kafka(admin, plan.cluster) as kafka:
        found = {each.name: each for each in find_topics(kafka(), names)}
        if plan.recipe == DOUBLE_READ:
            with closing(kafka.groups()) as groups:
                unnamed = unnamed_groups(groups, {name: each.partitions for name, each in found.items()}, plan.groups)
    entries = {name: entry.value for name in names if (entry := admin.store.get("topic", name)) is not None}
    definitions = {name: TopicDefinition.from_value(name, value) for name, value in entries.items()}
    of_family = {name: family for name in names if name not in entries and (family := families.defining(admin, name))}
    faults = plan_faults(plan, found, definitions, of_family, marks(admin.store, names), accepted)
    faults += dual_read_faults(plan, [*definitions, *of_family], *_dual_reads(admin, plan))
    if faults:
        raise InvalidDefinition(thing("plan", plan.name), faults)
    return unnamed


def _dual_reads(
    admin: Administrator, plan: MigrationPlan
) -> tuple[list[str], dict[str, GroupDefinition], list[SharedReadDefinition]]:
    """Topics of the plan with a copy, the plan's groups as they are defined, and all dual reads."""
    copied = {
        each
        for kind in (CopyInDefinition, CopyOutDefinition)
        for each in admin.store.taken(kind.kind, plan.topic_names)
    }
    found = {name: each for name in plan.groups if (each := admin.store.get(GroupDefinition.kind, name)) is not None}
    groups = {name: GroupDefinition.from_value(name, each.value) for name, each in found.items()}
    shared = verbs.page(admin, SharedReadDefinition, "", "", SHARED_READS_MAX, lambda error: None)
    return sorted(copied), groups, shared

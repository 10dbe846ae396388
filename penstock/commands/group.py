"""`penstock group`: settings, lag, resets and dead letters of consumer groups."""

from typing import Any

import click

from common.admin import groups
from common.admin.groups import GroupSettings
from common.config.definitions import GroupDefinition
from penstock.commands.dead_letters import dead_letters
from penstock.commands.exits import USAGE, CommandError, CommandGroup
from penstock.commands.instance import Instance, administration, instance_options, note
from penstock.commands.output import output_option, show_one, show_rows
from penstock.commands.paging import page_options
from penstock.commands.setting_options import settings_options
from penstock.commands.times import parse_time

COLUMNS = ("name", "topics", "invisible_ms", "start", "attempts_max", "retry", "order", "on_failure", "paused")
LAG_COLUMNS = ("topic", "queue", "first", "end", "progress", "in_flight", "lag", "lag_bytes", "lag_s")


def row(group: GroupDefinition) -> dict[str, Any]:
    return {"name": group.name, **group.to_value(), "paused": group.paused}


@click.group(cls=CommandGroup)
def group() -> None:
    """Manage consumer groups: settings, lag, position, dead letters.

    A group needs a definition only to change its settings, or to pull without naming topics. All settings:
    docs/settings.md.

    \b
    penstock group create readers --topic orders --invisible-ms 60000
    penstock group set readers --attempts-max 5 --retry 1000,10000,60000
    penstock group set readers --filter "country IN ('DE', 'FR') AND amount >= 100"
    penstock group lag readers
    penstock group reset readers --topic orders --to -1000 --dry-run
    penstock group reset readers --topic orders --to 2026-11-21T10:00:00Z
    penstock group pause readers
    """


@group.command()
@click.argument("name")
@settings_options(GroupSettings)
@output_option
@instance_options()
def create(instance: Instance, name: str, output: str, settings: GroupSettings) -> None:
    """Define group NAME."""
    with administration(instance, changes=True) as admin:
        made = groups.create(admin, name, settings)
    show_one(row(made), output)


@group.command("list")
@page_options
@output_option
@instance_options()
def list_command(instance: Instance, prefix: str, after: str, limit: int, output: str) -> None:
    """List the groups that have a definition."""
    with administration(instance) as admin:
        found = groups.list_groups(admin, prefix, after, limit)
    show_rows([row(each) for each in found], COLUMNS, output)


@group.command()
@click.argument("name")
@output_option
@instance_options()
def show(instance: Instance, name: str, output: str) -> None:
    """Show one group's settings."""
    with administration(instance) as admin:
        found, version = groups.show(admin, name)
    show_one({**row(found), "version": version}, output)


@group.command("set")
@click.argument("name")
@settings_options(GroupSettings)
@output_option
@instance_options()
def set_command(instance: Instance, name: str, output: str, settings: GroupSettings) -> None:
    """Change the given settings of a group. Every proxy and engine follows within a second."""
    if not settings:
        raise click.UsageError("no setting is given: use an option such as --topic or --filter, see --help")
    with administration(instance, changes=True) as admin:
        changed = groups.set_group(admin, name, settings)
    show_one(row(changed), output)


@group.command()
@click.argument("name")
@output_option
@instance_options()
def delete(instance: Instance, name: str, output: str) -> None:
    """Delete a group's definition. Its position stays with the engine."""
    with administration(instance, changes=True) as admin:
        groups.delete(admin, name)
    show_one({"deleted": name}, output)


@group.command()
@click.argument("name")
@click.option("--topic", metavar="TOPIC", help="Show only this topic.")
@output_option
@instance_options("engine")
def lag(instance: Instance, name: str, topic: str | None, output: str) -> None:
    """Show the group's lag per queue: messages, bytes (estimated from the newest message) and age of the oldest
    message.
    """
    rows, columns = _ask_engines(instance, "lag", "queues", topic, LAG_COLUMNS, group=name, detail=True)
    show_rows(rows, columns, output)
    if output == "table":
        messages, size = sum(each["lag"] for each in rows), sum(each["lag_bytes"] for each in rows)
        oldest_s = max((each["lag_s"] for each in rows), default=0)
        click.echo(f"total lag: {messages:,} messages, about {size:,} bytes; the oldest is {oldest_s:g} s old")


@group.command()
@click.argument("name")
@click.option("--topic", required=True, metavar="TOPIC", help="Move the position on this topic.")
@click.option(
    "--to",
    required=True,
    metavar="earliest|latest|OFFSET|+N|-N|TIME",
    help="Move to this place; +N and -N move by N messages, TIME is an age (10m) or a date.",
)
@click.option("--queue", type=click.IntRange(min=0), metavar="N", help="Move only in queue N (default: all queues).")
@click.option("--preview", "--dry-run", "preview", is_flag=True, help="Show the moves without making them.")
@output_option
@instance_options("engine")
def reset(instance: Instance, name: str, topic: str, to: str, queue: int | None, preview: bool, output: str) -> None:
    """Move the group's position on a topic. Messages that are in flight are delivered again."""
    rows, columns = _ask_engines(
        instance, "reset", "moved", topic, ("queue", "old", "new"),
        group=name, to=_target(to), queue=queue, preview=preview or None,
    )  # fmt: skip
    if not preview:
        old, new = ({str(each["queue"]): each[side] for each in rows} for side in ("old", "new"))
        note(instance, "reset", "progress", f"{name}/{topic}", old, new)
    show_rows(rows, columns, output)


@group.command()
@click.argument("name")
@output_option
@instance_options()
def pause(instance: Instance, name: str, output: str) -> None:
    """Stop deliveries to the group: its pulls are answered empty and its lag grows. Acknowledgements still count."""
    _set_paused(instance, name, True, output)


@group.command()
@click.argument("name")
@output_option
@instance_options()
def resume(instance: Instance, name: str, output: str) -> None:
    """Resume deliveries to a paused group."""
    _set_paused(instance, name, False, output)


group.add_command(dead_letters)


def _set_paused(instance: Instance, name: str, paused: bool, output: str) -> None:
    with administration(instance, changes=True) as admin:
        changed = groups.set_paused(admin, name, paused)
    show_one(row(changed), output)


def _target(to: str) -> Any:
    """The target of --to in the engine's form."""
    if to in ("earliest", "latest"):
        return to
    if to.isdecimal():
        return int(to)
    if to[:1] in "+-" and to[1:].isdecimal():
        return {"shift": int(to)}
    try:
        return {"time_ms": parse_time(to)}
    except ValueError as rule:
        raise CommandError(
            f"--to {to}: not a target: use earliest, latest, an offset, +N or -N, or {rule}", USAGE
        ) from rule


def _ask_engines(
    instance: Instance, verb: str, rows: str, topic: str | None, columns: tuple[str, ...], **options: Any
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Rows of all queues, and their columns."""
    from penstock.commands import engines  # the link and its native parts: only for the commands that need the engine

    answers = engines.ask_all(instance, verb, topic=topic, **options)
    groups = list(instance.engines())
    found = engines.rows_of_queues({name: answer[rows] for name, answer in answers.items()}, groups, topic)
    return found, columns if len(groups) == 1 else (*columns, "broker_group")


command = group

"""`penstock group`: settings, lag, resets and dead letters of consumer groups."""

from typing import Any

import click

from common.admin import groups
from common.admin.administrator import Administrator
from common.admin.groups import GroupSettings
from common.config.definitions import GroupDefinition
from penstock.commands.dead_letters import dead_letters
from penstock.commands.group_describe import describe
from penstock.terminal import completing
from penstock.terminal.confirming import confirm, yes_option
from penstock.terminal.exits import NOT_FOUND, USAGE, CommandError, CommandGroup
from penstock.terminal.instance import Instance, administration, instance_options, note, warn_unreadable
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows
from penstock.terminal.paging import page_options
from penstock.terminal.setting_options import settings_options
from penstock.terminal.times import parse_time

COLUMNS = ("name", "topics", "order", "attempts_max", "paused")
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
        _warn_of_unknown_topics(admin, made)
    show_one(row(made), output)


@group.command("list")
@page_options
@click.option("--all", "shows_all", is_flag=True, help="List also groups without a definition, which a pull has made.")
@output_option
@instance_options("engine")
def list_command(instance: Instance, prefix: str, after: str, limit: int, shows_all: bool, output: str) -> None:
    """List the groups that have a definition, or with --all every group that has one or has pulled."""
    with administration(instance) as admin:
        found = [row(each) for each in groups.list_groups(admin, prefix, after, limit, warn_unreadable)]
    if not shows_all:
        show_rows(found, COLUMNS, output)
        return
    undefined = _pulled(instance, prefix, after, limit) - {each["name"] for each in found}
    rows = [{"defined": True, **each} for each in found] + [{"name": name, "defined": False} for name in undefined]
    show_rows(sorted(rows, key=lambda each: each["name"])[:limit], ("name", "defined", *COLUMNS[1:]), output)


def _pulled(instance: Instance, prefix: str, after: str, limit: int) -> set[str]:
    """Names of groups that the engines know, each engine's first ones."""
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    answers = engines.ask_all(instance, "groups", prefix=prefix, after=after, limit=limit)
    return {name for answer in answers.values() for name in answer["groups"]}


@group.command()
@click.argument("name", shell_complete=completing.groups)
@output_option
@instance_options()
def show(instance: Instance, name: str, output: str) -> None:
    """Show one group's settings."""
    with administration(instance) as admin:
        found, version = groups.show(admin, name)
    show_one({**row(found), "version": version}, output)


@group.command("set")
@click.argument("name", shell_complete=completing.groups)
@settings_options(GroupSettings)
@output_option
@instance_options()
def set_command(instance: Instance, name: str, output: str, settings: GroupSettings) -> None:
    """Change the given settings of a group. Every proxy and engine follows within a second."""
    if not settings:
        raise click.UsageError("no setting is given: use an option such as --topic or --filter, see --help")
    with administration(instance, changes=True) as admin:
        changed = groups.set_group(admin, name, settings)
        if "topics" in settings.given():
            _warn_of_unknown_topics(admin, changed)
    show_one(row(changed), output)


@group.command()
@click.argument("name", shell_complete=completing.groups)
@click.option("--progress", is_flag=True, help="Delete the group's position at the engines, too, if it has one.")
@yes_option
@output_option
@instance_options("engine")
def delete(instance: Instance, name: str, progress: bool, yes: bool, output: str) -> None:
    """Delete a group's definition. Its position stays with the engine, unless --progress is given.

    With --progress a group without a definition is deleted, too. It is refused while the group's consumers run (exit
    code 2); a group of that name begins anew.
    """
    what = "its definition and its positions" if progress else "its definition"
    confirm(f"Delete group {name}: {what}?", yes)
    answer: dict[str, Any] = {"deleted": name}
    with administration(instance, changes=True) as admin:
        is_defined = groups.is_defined(admin, name)
        if progress:
            answer["queues"] = _forget(instance, name, must_exist=not is_defined)
        if is_defined or not progress:
            groups.delete(admin, name)
    if progress:
        note(instance, "delete", "progress", name, None, {"queues": answer["queues"]})
    show_one(answer, output)


@group.command()
@click.option("--days", type=click.IntRange(min=0), default=30, metavar="N", help="Days without a use (default 30).")
@output_option
@instance_options("engine")
def unused(instance: Instance, days: int, output: str) -> None:
    """List groups without a definition that were not used for N days in which the engine ran.

    An engine forgets them by itself after its --expire-days (default 30; 0: never).
    """
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    answers = engines.ask_all(instance, "unused", days=days)
    names = sorted({name for answer in answers.values() for name in answer["groups"]})
    show_rows([{"name": name} for name in names], ("name",), output)


@group.command()
@click.argument("name", shell_complete=completing.groups)
@click.option("--topic", metavar="TOPIC", shell_complete=completing.topics, help="Show only this topic.")
@output_option
@instance_options("engine")
def lag(instance: Instance, name: str, topic: str | None, output: str) -> None:
    """Show the group's lag per queue: messages, bytes (estimated from the newest message) and age of the oldest
    message.
    """
    rows, columns = _ask_engines(instance, "lag", "queues", topic, LAG_COLUMNS, group=name, detail=True)
    show_rows(rows, columns, output)
    if not is_for_scripts(output):
        messages, size = sum(each["lag"] for each in rows), sum(each["lag_bytes"] for each in rows)
        oldest_s = max((each["lag_s"] for each in rows), default=0)
        click.echo(f"total lag: {messages:,} messages, about {size:,} bytes; the oldest is {oldest_s:g} s old")


@group.command()
@click.argument("name", shell_complete=completing.groups)
@click.option(
    "--topic", required=True, metavar="TOPIC", shell_complete=completing.topics, help="Move the position on this topic."
)
@click.option(
    "--to",
    required=True,
    metavar="earliest|latest|OFFSET|+N|-N|TIME",
    help="Move to this place. OFFSET counts a queue's messages and is at most its end; +N and -N move by N messages. "
    "TIME is an age (10m), a date, or Unix milliseconds after an @ (@1795255200000).",
)
@click.option("--queue", type=click.IntRange(min=0), metavar="N", help="Move only in queue N (default: all queues).")
@click.option("--preview", "--dry-run", "preview", is_flag=True, help="Show the moves without making them.")
@yes_option
@output_option
@instance_options("engine")
def reset(
    instance: Instance, name: str, topic: str, to: str, queue: int | None, preview: bool, yes: bool, output: str
) -> None:
    """Move the group's position on a topic. Messages that are in flight are delivered again.

    Each queue is moved to the offset that was shown before the question, also if more messages have come since.
    Nothing is moved when an offset is beyond the end of a queue (exit code 2), or when the group has never pulled (3).
    """
    options = {"group": name, "to": _target(to), "queue": queue}
    shown = ("queue", "old", "new")
    # Every engine checks the request before the first one moves anything.
    rows, columns = _ask_engines(instance, "reset", "moved", topic, shown, **options, preview=True)
    if not preview:
        confirm(f"Move group {name} on topic {topic}? {_effect(rows)}.", yes)
        rows = _move(instance, name, topic, rows)
    show_rows(rows, columns, output)


@group.command()
@click.argument("name", shell_complete=completing.groups)
@output_option
@instance_options()
def pause(instance: Instance, name: str, output: str) -> None:
    """Stop deliveries to the group: its pulls are answered empty and its lag grows. Acknowledgements still count."""
    _set_paused(instance, name, True, output)


@group.command()
@click.argument("name", shell_complete=completing.groups)
@output_option
@instance_options()
def resume(instance: Instance, name: str, output: str) -> None:
    """Resume deliveries to a paused group."""
    _set_paused(instance, name, False, output)


group.add_command(dead_letters)
group.add_command(describe)


def _move(instance: Instance, name: str, topic: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move the queues of a preview to its offsets, and note it; returns the moves.

    Raises CommandError of the engine that refused; those before it have moved their queues, which is noted, too.
    """
    from engine.client import joined
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    moved: list[dict[str, Any]] = []
    homes = list(instance.engines())
    try:
        with engines.connected(instance) as links:
            for home, offsets in joined.offsets_by_home(rows, homes).items():
                with engines.named(home):
                    answer = links[home].ask("reset", group=name, topic=topic, to={"offsets": offsets})["moved"]
                moved += [{**each, "broker_group": home} if len(homes) > 1 else each for each in answer]
    finally:
        if moved:
            old, new = ({str(each["queue"]): each[side] for each in moved} for side in ("old", "new"))
            note(instance, "reset", "progress", f"{name}/{topic}", old, new)
    return sorted(moved, key=lambda each: each["queue"])


def _effect(moves: list[dict[str, Any]]) -> str:
    """What a reset does to messages."""
    steps = [each["new"] - each["old"] for each in moves]
    skipped, again = sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)
    return f"It skips {skipped:,} messages and delivers {again:,} again"


def _forget(instance: Instance, name: str, *, must_exist: bool) -> int:
    """Delete the group's progress at all engines; returns its number of queues."""
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    try:
        answers = engines.ask_all(instance, "forget", group=name)
    except CommandError as error:
        if error.exit_code != NOT_FOUND or must_exist:
            raise
        return 0
    return sum(answer["forgotten"] for answer in answers.values())


def _warn_of_unknown_topics(admin: Administrator, group: GroupDefinition) -> None:
    for topic in groups.unknown_topics(admin, group):
        click.echo(
            f"warning: topic {topic}: not defined: pulls report it as unknown until it is created: "
            f"check the name, or use `penstock topic create {topic}`",
            err=True,
        )


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
    from engine.client import joined
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    answers = engines.ask_all(instance, verb, topic=topic, **options)
    groups = list(instance.engines())
    by_home = {name: answer[rows] for name, answer in answers.items()}
    found = joined.rows_of_queues(by_home, groups, topic, instance.placed_topics(groups))
    return found, columns if len(groups) == 1 else (*columns, "broker_group")


command = group

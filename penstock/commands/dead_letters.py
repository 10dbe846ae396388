"""`penstock group dead-letters`: list, redrive, purge.

The loops behind them: engine/client/dead_letters.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from common.contract import Code
from common.dead_letters import CAUSES
from common.utc import utc_ms
from engine.client import dead_letters as verbs
from engine.client.dead_letters import DeadLetterChoice
from penstock.terminal.exits import CommandError, CommandGroup
from penstock.terminal.instance import Instance, instance_options, note
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows
from penstock.terminal.times import TimeType

COLUMNS = ("offset", "died", "cause", "attempts", "topic", "reason")
FIELDS = (
    "offset", "died_ms", "cause", "reason", "attempts", "topic", "queue", "message_offset", "id", "key", "first_ms", "last_ms",
)  # fmt: skip


class _DeathType(TimeType):
    """A time; a bare number is Unix milliseconds, as the option took it before."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        return super().convert(f"@{value}" if isinstance(value, str) and value.isdecimal() else value, param, context)


def choice_options(command: Any) -> Any:
    for option in (
        click.option(
            "--until",
            "--until-ms",
            "until_ms",
            type=_DeathType(),
            metavar="TIME",
            help="Choose those that were dead-lettered before TIME: an age (10m), a date, or @ and Unix milliseconds.",
        ),
        click.option(
            "--since",
            "--since-ms",
            "since_ms",
            type=_DeathType(),
            metavar="TIME",
            help="Choose those that were dead-lettered at TIME or later.",
        ),
        click.option("--topic", metavar="TOPIC", help="Choose messages of this topic."),
        click.option("--reason", metavar="TEXT", help="Choose those whose reason contains TEXT."),
        click.option("--cause", type=click.Choice(CAUSES), help="Choose those with this cause."),
    ):
        command = option(command)
    return command


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show how many are chosen.")


@click.group("dead-letters", cls=CommandGroup)
def dead_letters() -> None:
    """List, redrive or purge messages that the group rejected, or that failed in all attempts.

    They are in the topic _dlq.GROUP, from which the group may also pull them.

    \b
    penstock group dead-letters list readers --cause rejected
    penstock group dead-letters redrive readers --topic orders --rate 500
    penstock group dead-letters purge readers --until 7d --dry-run
    """


@dead_letters.command("list")
@click.argument("name")
@choice_options
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    metavar="N",
    help="Show at most N dead letters, oldest first (default 100).",
)
@output_option
@instance_options("engine")
def list_command(instance: Instance, name: str, limit: int, output: str, **choice: Any) -> None:
    """List dead letters, oldest first."""
    rows: list[dict[str, Any]] = []
    with engines(instance) as links:
        for link in links:
            found: list[dict[str, Any]] = []
            for answer in verbs.pages(link, "dead_letters", name, DeadLetterChoice(**choice)):
                found += answer["letters"]
                if len(found) >= limit:
                    break
            rows += [{**row, "broker_group": link.name} for row in found[:limit]]
    if len(links) > 1:
        rows.sort(key=lambda row: row["died_ms"])
    more = ("broker_group",) if len(links) > 1 else ()
    shown = [{column: row.get(column, "") for column in (*FIELDS, *more)} for row in rows[:limit]]
    if not is_for_scripts(output):
        shown = [{**row, "died": utc_ms(row["died_ms"])} for row in shown]
    show_rows(shown, (*COLUMNS, *more), output)


@dead_letters.command()
@click.argument("name")
@choice_options
@click.option("--to", metavar="TOPIC", help="Send them to TOPIC (default: their own topics).")
@click.option(
    "--rate",
    type=click.IntRange(1),
    default=2_000,
    metavar="N",
    help="Send about N messages per second (default 2,000).",
)
@dry_run_option
@output_option
@instance_options("engine")
def redrive(
    instance: Instance, name: str, to: str | None, rate: int, dry_run: bool, output: str, **choice: Any
) -> None:
    """Send dead letters again; each is removed when its copy is durable.

    The topic's other groups receive them too. Dead letters that are in flight, and those of deleted topics, stay.
    """
    count = 0
    with engines(instance) as links:
        if dry_run:
            show_one({"would_redrive": _count(links, name, choice)}, output)
            return
        for link in links:
            unsettled = 0
            for answer in verbs.pages(link, "redrive", name, DeadLetterChoice(**choice), rate, to=to):
                count, unsettled = count + answer["count"], answer["unsettled"]
            if unsettled:
                _wait_settled(link, name)
    note(instance, "redrive", "dead_letters", name, None, {"redriven": count, "to": to, **_said(choice)})
    show_one({"redriven": count}, output)


@dead_letters.command()
@click.argument("name")
@choice_options
@click.option("--yes", is_flag=True, help="Purge without asking.")
@dry_run_option
@output_option
@instance_options("engine")
def purge(instance: Instance, name: str, yes: bool, dry_run: bool, output: str, **choice: Any) -> None:
    """Delete dead letters. Those that are in flight stay."""
    ends: dict[str, int] = {}  # by engine: of the dead letters that were counted; later ones stay
    if not yes or dry_run:
        with engines(instance) as links:
            chosen_now = _count(links, name, choice, ends)
        if dry_run:
            show_one({"would_purge": chosen_now}, output)
            return
        click.confirm(f"Delete {chosen_now:,} dead letters of group {name}?", abort=True, err=True)
    with engines(instance) as links:
        count = 0
        for link in links:
            chosen = DeadLetterChoice(**choice, before=ends.get(link.name))
            count += sum(answer["count"] for answer in verbs.pages(link, "purge", name, chosen))
    note(instance, "purge", "dead_letters", name, None, {"purged": count, **_said(choice)})
    show_one({"purged": count}, output)


def _count(links: list["_Link"], name: str, choice: dict[str, Any], ends: dict[str, int] | None = None) -> int:
    """Count the dead letters that match the filters now.

    Args:
        ends: gets the end of what was counted, by engine.
    """
    count = 0
    for link in links:
        for answer in verbs.pages(link, "dead_letters", name, DeadLetterChoice(**choice)):
            count += len(answer["letters"])
            if ends is not None:
                ends.setdefault(link.name, answer["end"])
    return count


def _wait_settled(link: "_Link", name: str) -> None:
    from engine.client.admin import AdminError

    try:
        verbs.wait_settled(link, name)
    except AdminError as error:
        raise CommandError(str(error)) from error


def _said(choice: dict[str, Any]) -> dict[str, Any]:
    """The filters that were given, for the audit journal."""
    return {name: value for name, value in choice.items() if value is not None}


@contextmanager
def engines(instance: Instance) -> Iterator[list["_Link"]]:
    """An administrative link to every engine; a rejected request becomes one line."""
    from penstock.terminal.engines import connected  # the link and its native parts: only for commands that need it

    with connected(instance) as found:
        yield [_Link(name, engine, len(found) > 1) for name, engine in found.items()]


class _Link:
    """One engine. Among several, an engine that does not know the group has no dead letters of it."""

    def __init__(self, name: str, engine: Any, is_one_of_many: bool) -> None:
        self.name, self._engine, self._is_one_of_many = name, engine, is_one_of_many

    def ask(self, verb: str, **options: Any) -> dict[str, Any]:
        from engine.client.admin import AdminError
        from penstock.terminal.engines import named

        with named(self.name):
            try:
                return self._engine.ask(verb, **options)
            except AdminError as error:
                if error.code != Code.UNKNOWN_GROUP or not self._is_one_of_many:
                    raise
                return {"letters": [], "count": 0, "unsettled": 0, "next": 0, "end": 0}

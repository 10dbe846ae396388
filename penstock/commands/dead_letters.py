"""`penstock group dead-letters`: list, redrive, purge.

The loops behind them: engine/client/dead_letters.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from common.contract import Code
from common.dead_letters import CAUSES
from engine.client import dead_letters as verbs
from engine.client.dead_letters import DeadLetterChoice
from penstock.commands.exits import CommandError, CommandGroup
from penstock.commands.instance import Instance, instance_options, note
from penstock.commands.output import output_option, show_one, show_rows

COLUMNS = ("offset", "died_ms", "cause", "reason", "attempts", "topic", "queue", "message_offset", "id", "key")


def choice_options(command: Any) -> Any:
    for option in (
        click.option(
            "--until-ms", type=int, metavar="MS", help="Choose those that were dead-lettered before this Unix time."
        ),
        click.option(
            "--since-ms",
            type=int,
            metavar="MS",
            help="Choose those that were dead-lettered at or after this Unix time.",
        ),
        click.option("--topic", metavar="TOPIC", help="Choose messages of this topic."),
        click.option("--reason", metavar="TEXT", help="Choose those whose reason contains TEXT."),
        click.option("--cause", type=click.Choice(CAUSES), help="Choose those with this cause."),
    ):
        command = option(command)
    return command


@click.group("dead-letters", cls=CommandGroup)
def dead_letters() -> None:
    """List, redrive or purge messages that the group rejected, or that failed in all attempts.

    They are in the topic _dlq.GROUP, from which the group may also pull them.

    \b
    penstock group dead-letters list readers --cause rejected
    penstock group dead-letters redrive readers --topic orders --rate 500
    penstock group dead-letters purge readers --until-ms 1800000000000
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
    columns = (*COLUMNS, "first_ms", "last_ms", *(("broker_group",) if len(links) > 1 else ()))
    show_rows(
        [{column: row.get(column, "") for column in columns} for row in rows[:limit]],
        columns if len(links) > 1 else COLUMNS,
        output,
    )


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
@output_option
@instance_options("engine")
def redrive(instance: Instance, name: str, to: str | None, rate: int, output: str, **choice: Any) -> None:
    """Send dead letters again; each is removed when its copy is durable.

    The topic's other groups receive them too. Dead letters that are in flight, and those of deleted topics, stay.
    """
    count = 0
    with engines(instance) as links:
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
@output_option
@instance_options("engine")
def purge(instance: Instance, name: str, yes: bool, output: str, **choice: Any) -> None:
    """Delete dead letters. Those that are in flight stay."""
    if not yes:
        click.confirm(f"Delete dead letters of group {name}?", abort=True, err=True)
    with engines(instance) as links:
        chosen = DeadLetterChoice(**choice)
        count = sum(answer["count"] for link in links for answer in verbs.pages(link, "purge", name, chosen))
    note(instance, "purge", "dead_letters", name, None, {"purged": count, **_said(choice)})
    show_one({"purged": count}, output)


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
    from penstock.commands.engines import connected  # the link and its native parts: only for commands that need it

    with connected(instance) as found:
        yield [_Link(name, engine, len(found) > 1) for name, engine in found.items()]


class _Link:
    """One engine. Among several, an engine that does not know the group has no dead letters of it."""

    def __init__(self, name: str, engine: Any, is_one_of_many: bool) -> None:
        self.name, self._engine, self._is_one_of_many = name, engine, is_one_of_many

    def ask(self, verb: str, **options: Any) -> dict[str, Any]:
        from engine.client.admin import AdminError
        from penstock.commands.engines import named

        with named(self.name):
            try:
                return self._engine.ask(verb, **options)
            except AdminError as error:
                if error.code != Code.UNKNOWN_GROUP or not self._is_one_of_many:
                    raise
                return {"letters": [], "count": 0, "unsettled": 0, "next": 0, "end": 0}

"""`penstock group dead-letters`: list, redrive, purge.

Each is a loop of small requests, so that it may be stopped and begun again at any time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from common.contract import Code
from common.dead_letters import CAUSES
from penstock.commands.exits import CommandError, CommandGroup
from penstock.commands.instance import Instance, instance_options, note
from penstock.commands.output import output_option, show_one, show_rows

COLUMNS = ("offset", "died_ms", "cause", "reason", "attempts", "topic", "queue", "message_offset", "id", "key")
FETCH_PAUSE_S = 0.05
SETTLE_S_MAX = 30.0


def choice_options(command: Any) -> Any:
    for option in (
        click.option("--until-ms", type=int, help="Died before this Unix time."),
        click.option("--since-ms", type=int, help="Died at or after this Unix time."),
        click.option("--topic", help="Came from this topic."),
        click.option("--reason", help="The reason has this in it."),
        click.option("--cause", type=click.Choice(CAUSES)),
    ):
        command = option(command)
    return command


@click.group("dead-letters", cls=CommandGroup)
def dead_letters() -> None:
    """What the group rejected, or did not get done in its attempts.

    They lie in the topic _dlq.GROUP, where the group itself may also pull them.

    \b
    penstock group dead-letters list readers --cause rejected
    penstock group dead-letters redrive readers --topic orders --rate 500
    penstock group dead-letters purge readers --until-ms 1800000000000
    """


@dead_letters.command("list")
@click.argument("name")
@choice_options
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True)
@output_option
@instance_options("engine")
def list_command(instance: Instance, name: str, limit: int, output: str, **choice: Any) -> None:
    """List dead letters, the oldest first."""
    rows: list[dict[str, Any]] = []
    with engines(instance) as links:
        for link in links:
            found: list[dict[str, Any]] = []
            for answer in _walk(link, "dead_letters", name, choice):
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
@click.option("--to", metavar="TOPIC", help="Send them there.  [where they came from]")
@click.option("--rate", type=click.IntRange(1), default=2_000, show_default=True, help="Messages a second, about.")
@output_option
@instance_options("engine")
def redrive(instance: Instance, name: str, to: str | None, rate: int, output: str, **choice: Any) -> None:
    """Send dead letters again; each is taken out when its copy is durable.

    The topic's other groups get them too. Those in a consumer's hands, and those of topics that are gone, stay.
    """
    count = 0
    with engines(instance) as links:
        for link in links:
            unsettled = 0
            for answer in _walk(link, "redrive", name, {**choice, "to": to}, rate):
                count, unsettled = count + answer["count"], answer["unsettled"]
            if unsettled:
                _wait_settled(link, name)
    note(instance, "redrive", "dead_letters", name, None, {"redriven": count, "to": to, **_said(choice)})
    show_one({"redriven": count}, output)


@dead_letters.command()
@click.argument("name")
@choice_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@instance_options("engine")
def purge(instance: Instance, name: str, yes: bool, output: str, **choice: Any) -> None:
    """Throw dead letters away. Those in a consumer's hands stay."""
    if not yes:
        click.confirm(f"Throw dead letters of {name} away?", abort=True, err=True)
    with engines(instance) as links:
        count = sum(answer["count"] for link in links for answer in _walk(link, "purge", name, choice))
    note(instance, "purge", "dead_letters", name, None, {"purged": count, **_said(choice)})
    show_one({"purged": count}, output)


def _said(choice: dict[str, Any]) -> dict[str, Any]:
    """What of the dead letters was chosen."""
    return {name: value for name, value in choice.items() if value is not None}


def _walk(
    link: "_Link", verb: str, group: str, choice: dict[str, Any], rate: int | None = None
) -> Iterator[dict[str, Any]]:
    """Ask an engine until what was there at the beginning has been seen."""
    after, end = 0, None
    while end is None or after < end:
        answer = link.ask(verb, group=group, after=after, **choice)
        yield answer
        stuck = answer["next"] == after  # its records are being fetched from far behind the log's end
        after, end = answer["next"], answer["end"] if end is None else end
        if rate and answer["count"]:
            time.sleep(answer["count"] / rate)
        elif stuck and after < end:
            time.sleep(FETCH_PAUSE_S)


def _wait_settled(link: "_Link", group: str) -> None:
    until = time.monotonic() + SETTLE_S_MAX
    # A moment that no dead letter has: the request sends nothing and tells how many copies are not durable yet.
    while link.ask("redrive", group=group, until_ms=0)["unsettled"]:
        if time.monotonic() > until:
            raise CommandError("sent, but the engine does not say that the copies are durable; run it again later")
        time.sleep(FETCH_PAUSE_S)


@contextmanager
def engines(instance: Instance) -> Iterator[list["_Link"]]:
    """Every engine's administrative link, its refusals as one line."""
    from penstock.commands.engines import connected  # the link and its native parts: only for commands that need it

    with connected(instance) as found:
        yield [_Link(name, engine, len(found) > 1) for name, engine in found.items()]


class _Link:
    """One engine. Among several one that has never heard of the group has no dead letters of it."""

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

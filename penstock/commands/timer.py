"""`penstock timer`: delayed messages that are pending."""

from collections.abc import Mapping
from typing import Any

import click

from common.contract import Code
from common.utc import utc_ms
from engine.client import timers
from engine.client.admin import AdminClient, AdminError
from penstock.terminal import completing
from penstock.terminal.engines import connected, named
from penstock.terminal.exits import NOT_FOUND, CommandError, CommandGroup
from penstock.terminal.instance import Instance, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows

COLUMNS = ("topic", "id", "due", "rounds")
PAGE = 1000


@click.group(cls=CommandGroup)
def timer() -> None:
    """List and cancel delayed messages that are pending.

    \b
    penstock timer list --topic orders
    penstock timer cancel --topic orders 0198f2c4a1b2c3d4e5f6a7b8c9d0e1f2
    """


@timer.command("list")
@click.option("--topic", metavar="TOPIC", shell_complete=completing.topics, help="List only messages of this topic.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    metavar="N",
    help="List at most N messages (default 1000).",
)
@output_option
@instance_options("engine")
def list_command(instance: Instance, topic: str | None, limit: int, output: str) -> None:
    """List pending messages, soonest first. With more than the limit, an arbitrary part is listed."""
    with connected(instance) as engines:
        found = known_pages(engines, topic, limit)
    rows = [each for some, _ in found for each in some]
    is_all = all(is_end for _, is_end in found)
    rows = sorted(rows, key=lambda each: each["due_ms"])[:limit]
    show_rows([row(each) for each in rows], COLUMNS, output)
    if not is_all and not is_for_scripts(output):
        click.echo(f"{len(rows):,} shown, there are more: use a higher --limit", err=True)


def known_pages(
    engines: Mapping[str, AdminClient], topic: str | None, limit: int
) -> list[tuple[list[dict[str, Any]], bool]]:
    """The answers of all engines but those that do not know the topic: each knows those of its queues.

    Raises CommandError when none knows it.
    """
    found = []
    for number, (name, engine) in enumerate(engines.items(), 1):
        with named(name):
            try:
                found.append(pending(engine, topic, limit))
            except AdminError as error:
                if error.code != Code.UNKNOWN_TOPIC or (number == len(engines) and not found):
                    raise
    return found


def pending(engine: AdminClient, topic: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """(up to `limit` rows, whether these are all). The engine reads its pending messages page by page."""
    rows: list[dict[str, Any]] = []
    start = 0
    while start >= 0 and len(rows) < limit:
        page, start = timers.listed(engine, topic, start, min(PAGE, limit - len(rows)))
        rows += page
    return rows, start < 0


def row(timer: dict[str, Any]) -> dict[str, Any]:
    """The row with its time as text; the milliseconds stay for JSON."""
    return {**timer, "due": utc_ms(timer["due_ms"])}


@timer.command()
@click.argument("id")
@click.option(
    "--topic", required=True, metavar="TOPIC", shell_complete=completing.topics, help="Cancel a message of this topic."
)
@output_option
@instance_options("engine")
def cancel(instance: Instance, id: str, topic: str, output: str) -> None:
    """Cancel a pending message, or all coming rounds of a loop."""
    with connected(instance) as engines:
        cancelled = [_cancel(name, engine, topic, id) for name, engine in engines.items()]
    if not any(cancelled):
        raise CommandError(
            f'delayed message "{id}": not found in topic "{topic}", or already delivered',
            NOT_FOUND,
        )
    show_one({"topic": topic, "cancelled": id}, output)


def _cancel(name: str, engine: AdminClient, topic: str, id: str) -> bool:
    """Whether this engine had the message."""
    with named(name):
        try:
            timers.cancel(engine, topic, id)
        except AdminError as error:
            if error.code != Code.NOT_CANCELLABLE:
                raise
            return False
        return True


command = timer

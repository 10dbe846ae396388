"""`penstock timer`: delayed messages that are pending."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from engine.client import timers
from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.commands.exits import CommandError, Group, code_for_contract
from penstock.commands.instance import Instance, instance_options
from penstock.commands.output import output_option, show_one, show_rows

COLUMNS = ("topic", "id", "due", "queue", "bytes", "rounds", "gap_ms")
PAGE = 1000


@click.group(cls=Group)
def timer() -> None:
    """Delayed messages that have not been delivered yet.

    \b
    penstock timer list --topic orders
    penstock timer cancel --topic orders 0198f2c4a1b2c3d4e5f6a7b8c9d0e1f2
    """


@timer.command("list")
@click.option("--topic", help="Only of this topic.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@output_option
@instance_options("engine")
def list_command(instance: Instance, topic: str | None, limit: int, output: str) -> None:
    """List pending messages, the soonest first; of more than the limit any of them."""
    with engine_of(instance) as engine:
        rows, is_all = pending(engine, topic, limit)
    show_rows([row(each) for each in sorted(rows, key=lambda each: each["due_ms"])], COLUMNS, output)
    if not is_all and output == "table":
        click.echo(f"{len(rows):,} shown, there are more: --limit", err=True)


def pending(engine: AdminClient, topic: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """(up to so many, whether that is all). The engine looks through all pending messages, a page at a time."""
    rows: list[dict[str, Any]] = []
    start = 0
    while start >= 0 and len(rows) < limit:
        page, start = timers.listed(engine, topic, start, min(PAGE, limit - len(rows)))
        rows += page
    return rows, start < 0


def row(timer: dict[str, Any]) -> dict[str, Any]:
    """As people read it; JSON has the milliseconds too."""
    due = datetime.fromtimestamp(timer["due_ms"] / 1000, UTC)
    return {**timer, "due": due.isoformat(timespec="milliseconds")}


@timer.command()
@click.argument("id")
@click.option("--topic", required=True)
@output_option
@instance_options("engine")
def cancel(instance: Instance, id: str, topic: str, output: str) -> None:
    """Withdraw a pending message, or a loop with all rounds that are to come."""
    with engine_of(instance) as engine:
        timers.cancel(engine, topic, id)
    show_one({"topic": topic, "cancelled": id}, output)


@contextmanager
def engine_of(instance: Instance) -> Iterator[AdminClient]:
    """A link to the engine, whose refusals and failures are one line."""
    try:
        with AdminClient(instance.address("engine"), instance.cluster_key()) as engine:
            yield engine
    except AdminError as error:
        raise CommandError(f"engine: {error}", code_for_contract(error.code)) from error
    except LinkError as error:
        raise CommandError(f"engine: {error}") from error


command = timer

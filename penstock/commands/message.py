"""`penstock message`: stored messages by id, key, time and offset. Nothing is leased and no group's position moves."""

import json
from typing import Any

import click

from common.contract import Message, decode_struct
from common.placement import first_queue
from common.utc import utc_ms
from engine.client import lookup
from engine.client.lookup import Stored
from penstock.commands.tail import tail
from penstock.terminal import completing
from penstock.terminal.engines import joined
from penstock.terminal.exits import NOT_FOUND, CommandError, CommandGroup
from penstock.terminal.instance import Instance, instance_options
from penstock.terminal.message_lines import shown_body
from penstock.terminal.output import is_for_scripts, output_option, show_rows, tell
from penstock.terminal.times import TimeType

COLUMNS = ("queue", "offset", "stored_at", "id", "key", "tag", "body")
TABLE_BODY_CHARS = 60
ASK_TIMEOUT_S = 30.0


topic_option = click.option(
    "--topic", "-t", required=True, metavar="TOPIC", shell_complete=completing.topics, help="Search this topic."
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    metavar="N",
    help="Show at most N messages, oldest first (default 20).",
)


@click.group(cls=CommandGroup)
def message() -> None:
    """Show stored messages by id, key, time and offset. Nothing is leased and no group's position moves.

    \b
    penstock message tail orders -f
    penstock message show 0197d2c4a1b05f3e9d7c21aa00000001 --topic orders
    penstock message show order-17 --topic orders --from 2h
    penstock message find --topic orders --key customer-9 --from 1d
    penstock message find --topic orders --from 2026-07-01T12:30
    penstock message browse --topic orders --queue 3 --offset 1000
    """


@message.command()
@click.argument("shown", metavar="ID")
@topic_option
@click.option(
    "--from", "from_ms", type=TimeType(), help="Search only messages stored since TIME: an age, as 10m, or a date."
)
@output_option
@instance_options("engine")
def show(instance: Instance, shown: str, topic: str, from_ms: int | None, output: str) -> None:
    """Show the message with this id.

    An engine with `--look-up none` has no index and reads messages; the command reports that. For an assigned id it
    reads messages stored within 10 minutes of the time in the id; use --from for messages that were in a fallback
    buffer for longer. For a client-set id it reads the whole topic, or messages stored since --from.
    """
    with joined(instance, ASK_TIMEOUT_S) as link:
        found = lookup.by_id(link, topic, shown, from_ms, tell)
    if not found:
        raise CommandError(
            f'message "{shown}": not found in topic "{topic}" where it was searched: try --from', NOT_FOUND
        )
    show_messages(found, output)


@message.command()
@topic_option
@click.option("--key", metavar="KEY", help="Show only messages with this key.")
@click.option(
    "--from",
    "from_ms",
    type=TimeType(),
    help="Search messages stored since TIME: an age, as 10m, or a date (default: the oldest).",
)
@limit_option
@output_option
@instance_options("engine")
def find(instance: Instance, topic: str, key: str | None, from_ms: int | None, limit: int, output: str) -> None:
    """Find messages by key, by time, or by both, oldest first."""
    if key is None and from_ms is None:
        raise click.UsageError("no key or time is given: use --key, --from, or both")
    with joined(instance, ASK_TIMEOUT_S) as link:
        if key is None:
            found = lookup.since(link, topic, from_ms or 0, limit)
        else:
            placed = instance.placed_topics(instance.engines())
            found = lookup.by_key(link, topic, key, from_ms or 0, limit, tell, first_queue(placed, topic))
    show_messages(found, output)


@message.command()
@topic_option
@click.option("--queue", "-q", type=click.IntRange(min=0), required=True, metavar="N", help="Show messages of queue N.")
@click.option("--offset", type=click.IntRange(min=0), required=True, metavar="OFFSET", help="Start at OFFSET.")
@limit_option
@output_option
@instance_options("engine")
def browse(instance: Instance, topic: str, queue: int, offset: int, limit: int, output: str) -> None:
    """Show the messages of a queue, starting at an offset."""
    with joined(instance, ASK_TIMEOUT_S) as link:
        found = lookup.browse(link, topic, queue, offset, limit)
    show_messages(found, output)


message.add_command(tail)


def show_messages(found: list[Stored], output: str) -> None:
    """All fields as JSON, or a table with the beginning of each body."""
    rows = [row(each) for each in found]
    if not is_for_scripts(output):
        for each in rows:
            each["body"] = json.dumps(each.get("body", each.get("body_base64")), ensure_ascii=False)[:TABLE_BODY_CHARS]
    show_rows(rows, COLUMNS, output)


def row(stored: Stored) -> dict[str, Any]:
    """The message as JSON values, with the names of `penstock pull -o json`."""
    decoded = decode_struct(Message, stored.message)
    return {
        "topic": decoded.topic,
        "queue": stored.queue,
        "offset": stored.offset,
        "id": stored.id,
        "stored_at_ms": stored.stored_at_ms,
        "stored_at": utc_ms(stored.stored_at_ms),
        "key": decoded.key,
        "tag": decoded.tag,
        "properties": decoded.properties or {},
        **shown_body(decoded.body or b""),
    }


command = message

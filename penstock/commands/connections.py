"""`penstock connections`: the clients that are connected to the proxies."""

import time
from typing import Any

import click

from common.admin.connections import ConnectionRow, close_connection, find_connection, list_connections
from common.utc import utc_ms
from penstock.terminal import completing
from penstock.terminal.confirming import confirm, yes_option
from penstock.terminal.exits import UNAVAILABLE, CommandError, CommandGroup
from penstock.terminal.figures import duration, size
from penstock.terminal.instance import Instance, administration, instance_options, open_config
from penstock.terminal.output import output_option, show_one, show_rows

COLUMNS = ("id", "peer", "application", "group", "reads", "open")
WIDE_COLUMNS = (*COLUMNS, "since", "tls", "waits", "answered", "process")


@click.group("connections", cls=CommandGroup)
def command() -> None:
    """List the clients that are connected to the proxies, and close a connection.

    \b
    penstock connections list --group billing
    penstock connections close 6f1c02aa-17
    """


@command.command("list")
@click.option("--application", metavar="APP", default="", shell_complete=completing.names_of("application"),
    help="List only connections of this application.")  # fmt: skip
@click.option("--group", metavar="GROUP", default="", help="List only connections that pull as this group.")
@click.option("--topic", metavar="TOPIC", default="", shell_complete=completing.topics,
    help="List only connections that read this topic, and those whose application may send to it.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1_000), default=1_000, metavar="N",
    help="List at most N connections, the longest open ones (default 1000).")  # fmt: skip
@output_option
@instance_options()
def list_command(instance: Instance, application: str, group: str, topic: str, limit: int, output: str) -> None:
    """List open connections of all proxies, the longest open ones first.

    A connection has the application of its last call, and at consumer proxies the group and topics of its last pull.
    Producer proxies do not count topics per connection. Exit code 5 when a proxy does not answer.
    """
    with open_config(instance) as store:
        told = list_connections(store, {"application": application, "group": group, "topic": topic}, limit)
    show_rows([_row(each) for each in told.rows], COLUMNS, output, WIDE_COLUMNS)
    if told.total > len(told.rows):
        click.echo(f"{len(told.rows):,} of {told.total:,} connections shown: narrow the list by an option", err=True)
    if told.faults:
        raise CommandError("; ".join(told.faults), UNAVAILABLE)


@command.command()
@click.argument("id")
@yes_option
@output_option
@instance_options(keys=("admin_key", "cluster_key"))
def close(instance: Instance, id: str, yes: bool, output: str) -> None:
    """Close the connection ID of `penstock connections list`, after a question that names it.

    A call in progress gets no answer, as when a network breaks; unacknowledged messages are delivered again. The client
    may connect again: revoke its key to keep it out. Exit code 3 when the connection is closed already.
    """
    keys = instance.operator_keys()
    with administration(instance) as admin:
        found = find_connection(admin.store, id)
        confirm(f"Close the connection of {_named(found)}?", yes)
        closed = close_connection(admin, keys, id)
    show_one({"closed": closed.id, **_shown(closed)}, output)


def _named(row: ConnectionRow) -> str:
    """A connection in words."""
    who = f"application {row.application}" if row.application else "a client that has made no call"
    as_group = f", which pulls as group {row.group}," if row.group else ""
    return f"{who} from {row.peer}{as_group} to {row.process}"


def _shown(row: ConnectionRow) -> dict[str, Any]:
    return {"application": row.application, "peer": row.peer, "group": row.group, "process": row.process}


def _row(row: ConnectionRow) -> dict[str, Any]:
    """All fields for scripts, and their texts for tables."""
    reads = list(row.topics[:2]) + ([f"{row.topic_count - 2} more"] if row.topic_count > 2 else [])
    return {
        **row._asdict(), "topics": list(row.topics), "reads": reads, "open": duration(time.time() - row.since_ms / 1000),
        "since": utc_ms(row.since_ms), "waits": "yes" if row.is_waiting else "no", "answered": size(row.answered_bytes),
    }  # fmt: skip

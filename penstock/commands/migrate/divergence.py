"""`penstock migrate divergence`."""

from pathlib import Path
from typing import Any

import click

from penstock.terminal.directories import StoreDirectory
from penstock.terminal.exits import Command
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows
from producer_proxy.buffer.disk import survey
from producer_proxy.journal.divergence import Divergence, divergence
from producer_proxy.journal.missed import ALL_QUEUES

COLUMNS = ("topic", "queue", "what", "messages", "notes")
IDS_SHOWN_MAX = 3


@click.command(cls=Command, name="divergence")
@click.argument("directory", metavar="DIR", type=StoreDirectory("repair journal", survey.is_store))
@click.option("--stopped", is_flag=True, help="Its proxy is stopped: also list what was sent less than 2 s ago.")
@output_option
def command(directory: Path, stopped: bool, output: str) -> None:
    """List the messages that one side of a dual write lacks, by the repair journal DIR of one producer proxy.

    The proxy may be running. All ids are in -o json and yaml. Nothing is changed. See docs/dual-write.md.
    """
    found = divergence(directory, underway_ms=0) if stopped else divergence(directory)
    rows = _rows(found)
    if is_for_scripts(output):
        show_rows(rows, COLUMNS, output)
    elif found.is_empty:
        show_one({"journal": str(directory), "divergence": "none"}, output)
    else:
        show_rows([{**each, "notes": _shortened(each)} for each in rows], COLUMNS, output)


def _rows(found: Divergence) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"topic": each.topic, "queue": each.queue, "what": "primary only", "messages": len(each.ids), "ids": each.ids}
        for each in found.queues
    ]
    rows += [
        {"topic": each.topic, "queue": None, "what": "refused", "messages": 1, "ids": (each.id,), "notes": each.reason}
        for each in found.refused
    ]
    rows += [
        {
            "topic": each.topic, "queue": None if each.queue == ALL_QUEUES else each.queue, "what": "compare",
            "messages": each.messages, "from_ms": each.from_ms, "to_ms": each.to_ms, "first": each.first,
            "last": each.last, "notes": each.reason,
        }
        for each in found.ranges
    ]  # fmt: skip
    if found.damaged:
        rows.append({"topic": "*", "queue": None, "what": "damaged", "messages": found.damaged, "notes": "compare"})
    return rows


def _shortened(row: dict[str, Any]) -> str:
    ids, told = row.get("ids", ()), row.get("notes", "")
    more = [f"and {len(ids) - IDS_SHOWN_MAX:,} more"] if len(ids) > IDS_SHOWN_MAX else []
    return ": ".join(each for each in (", ".join([*ids[:IDS_SHOWN_MAX], *more]), told) if each)

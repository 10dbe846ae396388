"""`penstock audit`: administrative changes with author, old and new value."""

from textwrap import wrap
from typing import Any

import click

from common.admin import audit as journal
from common.config.store import KINDS
from common.quoting import escaped
from common.utc import utc_ms
from penstock.terminal.exits import USAGE, Command, CommandError
from penstock.terminal.instance import Instance, instance_options, open_config
from penstock.terminal.output import cell, is_for_scripts, output_option, show_rows, table
from penstock.terminal.suggestions import did_you_mean

COLUMNS = ("at", "who", "action", "kind", "names", "changed")
WIDTH = 80
NO_BREAK = "\N{NO-BREAK SPACE}"
NAMES_SHOWN = 3
OTHER_KINDS = ("progress", "dead_letters", "broker", "member")
"""Kinds of records that are no kinds of entries."""


@click.command(cls=Command)
@click.option(
    "--kind",
    metavar="KIND",
    help="Show only changes of this kind: topic, family, group, application, setting, progress or dead_letters.",
)
@click.option("--name", metavar="NAME", help="Show only changes of the entry with this name.")
@click.option("--who", metavar="AUTHOR", help="Show only changes by this author, such as cli:alice@host.")
@click.option(
    "--limit",
    type=click.IntRange(1, 32_000),
    default=50,
    metavar="N",
    help="Show at most N records, newest first (default 50).",
)
@output_option
@instance_options()
def command(instance: Instance, kind: str | None, name: str | None, who: str | None, limit: int, output: str) -> None:
    """Show administrative changes, newest first: author, action, old and new value. Secrets are never shown.

    A record is on disk when its command ends. Records are ordered by their authors' clocks; `version` orders the
    changes of one entry, whatever the clocks were.
    """
    with open_config(instance) as store:
        records = journal.latest(store, limit, kind=kind, name=name, who=who)
    if kind is not None and not records and kind not in (*KINDS, *OTHER_KINDS):
        hint = did_you_mean(kind, [*KINDS, *OTHER_KINDS]) or f"use one of {', '.join([*KINDS, *OTHER_KINDS])}"
        raise CommandError(f"--kind {kind}: no such kind: {hint}", USAGE)
    rows = [row(record, whole=is_for_scripts(output)) for record in records]
    if output == "table":
        show(rows)
    else:
        show_rows(rows, COLUMNS, output, COLUMNS)


def show(rows: list[dict[str, Any]]) -> None:
    """A line per record, and below it what has changed: as a column it would not fit."""
    lines = table(rows, COLUMNS[:-1])
    click.echo(lines[0])
    for line, each in zip(lines[1:], rows, strict=True):
        click.echo(line)
        fields = each["changed"].replace(" ", NO_BREAK).replace(f",{NO_BREAK}", ", ")  # lines end behind a comma
        for part in wrap(fields, WIDTH - 4, break_long_words=False, break_on_hyphens=False):
            click.echo(f"    {escaped(part.replace(NO_BREAK, ' '))}")


def row(record: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """A record as stored, with its time and its change as text; only the first of many names, unless `whole`."""
    names, more = record["names"], record["count"] - NAMES_SHOWN
    if more > 0 and not whole:
        names = [*names[:NAMES_SHOWN], f"{more:,} more"]
    return {**record, "at": utc_ms(record["at_ms"]), "names": names, "changed": changed(record["old"], record["new"])}


def changed(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    """`field old → new` per field; a creation or deletion has only one side."""
    before, after = old or {}, new or {}
    fields = [field for field in {**before, **after} if before.get(field) != after.get(field)]
    if old is None or new is None:
        return ", ".join(f"{field} {cell((before or after)[field])}" for field in fields)
    return ", ".join(f"{field} {cell(before.get(field))} → {cell(after.get(field))}" for field in fields)

"""`penstock audit`: who changed what, and from what to what."""

from datetime import UTC, datetime
from typing import Any

import click

from common.admin import audit as journal
from penstock.commands.instance import Instance, instance_options, open_config
from penstock.commands.output import output_option, show_rows

COLUMNS = ("at", "who", "action", "kind", "names", "changed")
NAMES_SHOWN = 3


@click.command()
@click.option(
    "--kind", help="Only changes of this kind: topic, family, group, application, setting, progress, dead_letters."
)
@click.option("--name", help="Only changes of what has this name.")
@click.option("--who", help="Only changes by this caller, such as cli:alice@host.")
@click.option("--limit", type=click.IntRange(1, 32_000), default=50, show_default=True, help="So many, the newest.")
@output_option
@instance_options()
def command(instance: Instance, kind: str | None, name: str | None, who: str | None, limit: int, output: str) -> None:
    """Show administrative changes, the newest first: who, what, from what to what. Never secrets.

    Each record was on the disk when its command ended. They are listed by the clocks of those who made them; changes of one
    entry are in the order of their `version`, whatever the clocks said.
    """
    with open_config(instance) as store:
        records = journal.latest(store, limit, kind=kind, name=name, who=who)
    show_rows([row(record, whole=output == "json") for record in records], COLUMNS, output)


def row(record: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """A record as stored, with its moment and its change in words; of many names the first, unless `whole`."""
    at = datetime.fromtimestamp(record["at_ms"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    names, more = record["names"], record["count"] - NAMES_SHOWN
    if more > 0 and not whole:
        names = [*names[:NAMES_SHOWN], f"{more:,} more"]
    return {**record, "at": at, "names": names, "changed": changed(record["old"], record["new"])}


def changed(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    """`field old → new`, field by field; what was made or deleted has only one side."""
    before, after = old or {}, new or {}
    fields = [field for field in {**before, **after} if before.get(field) != after.get(field)]
    if old is None or new is None:
        return ", ".join(f"{field} {(before or after)[field]}" for field in fields)
    return ", ".join(f"{field} {before.get(field)} → {after.get(field)}" for field in fields)

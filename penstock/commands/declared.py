"""`penstock apply` and `penstock export`: topics, families and groups as a file declares them."""

from typing import Any

import click

from common.admin import declared
from common.admin.declared import DeclaredChange
from common.config.text_values import kafka_cluster_of
from penstock.commands.topic import refuse_backlogs
from penstock.terminal.exits import CONFLICT, FAILED, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_rows
from penstock.terminal.reading import text_of

SIGNS = {"create": "+", "change": "~", "delete": "-"}


@click.command(cls=Command)
@click.option("-f", "--file", required=True, type=click.File(encoding="utf-8"), metavar="FILE",
              help="Declare the entries of FILE, in YAML or JSON (- for stdin).")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the changes and make none. Exit code 1 when there are some.")
@click.option("--prune", multiple=True, metavar="KIND/NAME",
              help="Delete this entry, such as topic/orders, where it exists. May be repeated.")  # fmt: skip
@click.option("--force", is_flag=True, help="Add queues also when the order by key of a group breaks.")
@output_option
@instance_options("engine")
def apply(instance: Instance, file: Any, dry_run: bool, prune: tuple[str, ...], force: bool, output: str) -> None:
    """Create and change topics, families and groups until they are as FILE declares them.

    An entry gets the settings of FILE and the defaults of all others. Entries that FILE does not have stay as they are.
    Applying FILE again changes nothing. Another writer between the comparison and the change is a conflict (exit code
    4): apply again.

    \b
    penstock export > topics.yaml
    penstock apply -f topics.yaml --dry-run
    penstock apply -f topics.yaml --prune topic/orders.old
    """
    wanted = declared.parse(text_of(file, declared.TEXT_BYTES_MAX), file.name)
    with administration(instance, changes=not dry_run) as admin:
        changes = declared.differences(admin, wanted, prune)
        check(instance, changes, force)
        show(changes, output)
        if not dry_run:
            declared.apply(admin, changes)
    raise SystemExit(FAILED if dry_run and changes else 0)


def check(instance: Instance, changes: list[DeclaredChange], force: bool) -> None:
    """Raise CommandError for changes that need another command."""
    for each in changes:
        old, new = each.old or {}, each.new or {}
        if each.kind == "topic" and each.old is None and kafka_cluster_of(str(new.get("home", ""))) is not None:
            raise CommandError(f"topic {each.name}: use `penstock topic create --home`, which asks Kafka", CONFLICT)
        if each.kind == "topic" and old and new and new.get("queues") != old.get("queues") and not force:
            refuse_backlogs(instance, each.name, old.get("queues", 0), new["queues"])


def show(changes: list[DeclaredChange], output: str) -> None:
    """The changes, one line per entry and one per setting."""
    if is_for_scripts(output):
        rows = [
            {"kind": each.kind, "name": each.name, "change": each.word, "fields": {k: list(v) for k, v in each.fields().items()}}
            for each in changes
        ]  # fmt: skip
        show_rows(rows, (), output)
        return
    for each in changes:
        click.echo(f"{SIGNS[each.word]} {each.kind} {each.name}")
        for name, (old, new) in each.fields().items() if each.new is not None else ():
            click.echo(f"    {name}: {new}" if each.old is None else f"    {name}: {text(old)} → {text(new)}")
    words = [f"{sum(each.word == word for each in changes)} to {word}" for word in SIGNS]
    click.echo(", ".join(words) if changes else "no change", err=True)


def text(value: Any) -> str:
    return "default" if value is None else str(value)


@click.command(cls=Command)
@click.option("--prefix", default="", help="Export only entries whose names begin with this.")
@instance_options()
def export(instance: Instance, prefix: str) -> None:
    """Write topics, families and groups as YAML, for `penstock apply`. Applications have secrets and are left out.

    `penstock config export` writes the whole configuration, for a backup.
    """
    with administration(instance) as admin:
        click.echo(declared.to_text(declared.export(admin, prefix)), nl=False)

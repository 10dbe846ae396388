"""`penstock migrate forget-journal`."""

import click

from common.admin import audit
from common.config.store import ConfigStore
from migration.journals import JournalEntry, forget_journal, journals_of, owner_at_work, what_may_be_missing
from penstock.terminal.exits import CONFLICT, NOT_FOUND, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import output_option, show_one


@click.command(cls=Command, name="forget-journal")
@click.argument("journal")
@click.option("--yes", is_flag=True, help="Remove the entry without asking.")
@output_option
@instance_options()
def command(instance: Instance, journal: str, yes: bool, output: str) -> None:
    """Remove the configuration entry of a repair journal whose disk is lost. JOURNAL is its directory or its id.

    It names what may be on one side only, and asks. Plans do not wait for the journal any more: compare both sides next,
    by `penstock migrate verify PLAN --all --repair`. A journal whose directory is still there is repaired by its proxy:
    start that instead. The entry of a proxy at work is refused.
    """
    with administration(instance) as admin:
        entry = _found(admin.store, journal)
        if process := owner_at_work(admin.store, entry):
            raise CommandError(f"journal {entry.id}: {process} is at work with it: it is not lost", CONFLICT)
        click.echo(f"journal {entry.id}, directory {entry.value['directory']} of {entry.value['process']}", err=True)
        for sentence in what_may_be_missing(entry):
            click.echo(f"may be on one side only: {sentence}", err=True)
        if not yes:
            click.confirm("Is its directory lost for good? Remove the entry?", abort=True, err=True)
        forget_journal(admin.store, entry)
        audit.record(admin.store, admin.clock, admin.who, "forget", "journal", [entry.id], dict(entry.value), None)
    show_one({"journal": entry.id, "directory": entry.value["directory"], "removed": "yes"}, output)


def _found(store: ConfigStore, name: str) -> JournalEntry:
    """Raises CommandError: no journal has that id or directory, or several have."""
    known = journals_of(store)
    found = [each for each in known if name in (each.id, each.value["directory"])]
    if not found:
        listed = ", ".join(f"{each.value['directory']} ({each.id})" for each in known) or "none"
        raise CommandError(f"journal {name}: not found: there are {listed}", NOT_FOUND)
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise CommandError(
            f"journal {name}: {len(found)} journals had this directory: use the id of the lost one: {ids}. The file "
            "`identity` in the directory has the id of the present one",
            CONFLICT,
        )
    return found[0]

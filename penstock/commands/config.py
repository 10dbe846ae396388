"""`penstock config`: back up, restore, check and repair the whole configuration."""

import json
from pathlib import Path
from typing import Any

import click

from common.admin import members as members_verbs
from common.admin import store_users, transfer, upkeep
from common.admin.applications import stored_keys
from common.admin.transfer import Difference
from common.config import files, snapshot
from common.config.definitions import ApplicationDefinition
from common.secret_file import secret_fault
from penstock.commands.settings_file import check, show
from penstock.terminal.exits import CONFLICT, FAILED, USAGE, CommandError, CommandGroup
from penstock.terminal.instance import Instance, administration, instance_options, open_config
from penstock.terminal.output import output_option, show_one, show_rows
from penstock.terminal.reading import text_of

KEPT_SHOWN = 5
SNAPSHOTS = ("producer_proxy.snapshot", "consumer_proxy.snapshot", "engine/config.snapshot")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("config", cls=CommandGroup)
def command() -> None:
    """Back up, restore, verify and repair the configuration: topics, families, groups, applications, broker groups.

    `check` and `show` are about penstock.toml, the file with the options of `up` and of the processes.

    \b
    penstock config check penstock.toml
    penstock config show --settings penstock.toml
    penstock config export --to backup.json
    penstock config export --snapshot /var/lib/penstock/producer_proxy.snapshot --to saved.json
    penstock config apply backup.json --diff
    penstock config verify && penstock config repair
    penstock config members
    penstock config access --readers proxies.auth
    """


command.add_command(check)
command.add_command(show)


@command.command()
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write to FILE with mode 0600 (default: stdout). It may exist if it is an export.")  # fmt: skip
@click.option("--snapshot", "source", type=FILE, metavar="FILE",
              help="Export what a process has kept in its snapshot FILE, in place of the store.")  # fmt: skip
@instance_options()
def export(instance: Instance, to: Path | None, source: Path | None) -> None:
    """Write the whole configuration as JSON, with the secrets of applications that are stored in clear.

    Root keys are not in it: without their file, applications whose secrets are derived need new keys.
    """
    if to is not None and not transfer.is_replaceable(to):
        raise CommandError(f"--to {to}: the file exists and is no export: remove it or name another one", CONFLICT)
    if source is not None:
        made = transfer.export_snapshot(source)
    else:
        with administration(instance) as admin:
            made = transfer.export(admin.store, admin.clock)
    text = json.dumps(made, indent=1) + "\n"
    if to is None:
        click.echo(text, nl=False)
    else:
        files.replace(to, text.encode())
    stored = stored_keys(made["kinds"].get(ApplicationDefinition.kind, {}).items())
    if stored.clear:
        click.echo(f"warning: {stored.in_clear}: keep the export from readers", err=True)
    if stored.derived:
        roots = ", ".join(sorted(stored.derived))
        click.echo(f"{stored.derived.total():,} keys need root keys that are not in the export: keep {roots}", err=True)


@command.command()
@click.argument("file", type=click.File(encoding="utf-8"), metavar="FILE")
@click.option("--diff", is_flag=True, help="Show the changes and make none. Exit code 1 when there are some.")
@click.option(
    "--delete/--keep", "deletes", default=None, help="What becomes of entries that FILE does not have (default: keep)."
)
@output_option
@instance_options()
def apply(instance: Instance, file: Any, diff: bool, deletes: bool | None, output: str) -> None:
    """Create and change entries until the store has those of FILE, an export (- for stdin).

    A store that has lost its content is in force again afterwards: the processes follow it, and need no restart. Of one
    that was put back from an older copy say what becomes of entries that FILE does not have: they may have been deleted
    since, as a stolen key's application.
    """
    given = transfer.parse(text_of(file, transfer.TEXT_CHARS_MAX), file.name)
    with administration(instance, changes=not diff) as admin:
        changes = transfer.differences(admin.store, given, deletes=deletes is not False)
        if deletes is None and transfer.has_gone_back(admin.store, given):
            _check_kept([each for each in changes if each.new is None], diff)
        if not deletes:
            changes = [each for each in changes if each.new is not None]
        restored = False if diff else transfer.apply(admin, given, changes)
    show_rows([row(each) for each in changes], ("kind", "name", "change"), output)
    if restored:
        click.echo(
            "The store had lost content; running processes follow it again once they have reached it: penstock config members "
            "names them, and until then a command does not wait for them.", err=True,
        )  # fmt: skip
    raise SystemExit(FAILED if diff and changes else 0)


def _check_kept(kept: list[Difference], diff: bool) -> None:
    if not kept:
        return
    names = ", ".join(f"{each.kind} {each.name}" for each in kept[:KEPT_SHOWN]) + (
        " …" if len(kept) > KEPT_SHOWN else ""
    )
    told = (
        f"the store was put back, and has {len(kept):,} entries that the file does not have, perhaps as they were deleted "
        f"since: {names}: say --delete or --keep"
    )
    if not diff:
        raise CommandError(told, CONFLICT)
    click.echo(f"warning: {told}", err=True)


def row(each: Difference) -> dict[str, Any]:
    """A change as a row, without secrets."""
    word = "create" if each.old is None else "delete" if each.new is None else "change"
    old, new = (_shown(each.kind, each.name, value) for value in (each.old, each.new))
    return {"kind": each.kind, "name": each.name, "change": word, "old": old, "new": new}


def _shown(kind: str, name: str, value: dict[str, Any] | None) -> dict[str, Any] | None:
    if kind != ApplicationDefinition.kind or value is None:
        return value
    return ApplicationDefinition.from_value(name, value).without_secrets()


@command.command()
@output_option
@instance_options()
def verify(instance: Instance, output: str) -> None:
    """Check the whole store: cluster id, indexes, buckets, every entry, ZooKeeper's access lists.

    Exit code 1 when there are faults.
    """
    with open_config(instance) as store:
        found = upkeep.verify(store)
    show_rows([each._asdict() for each in found], ("subject", "problem", "repair"), output)
    raise SystemExit(FAILED if found else 0)


@command.command()
@click.option("--accept-empty", is_flag=True,
              help="Make all processes follow the store as it is, though it is empty or older than what they know.")  # fmt: skip
@click.option("--cluster-id", metavar="ID",
              help="With --accept-empty: the id that the processes know (default: that of the store, or of DIR).")  # fmt: skip
@output_option
@instance_options()
def repair(instance: Instance, accept_empty: bool, cluster_id: str | None, output: str) -> None:
    """Make lost indexes again from their buckets, and remove reports that cannot be read. No entry is lost.

    With an auth_file, nodes in ZooKeeper that were made without it, or for other users, get their access lists.

    Entries that are gone come back by `penstock config apply`, from an export or the snapshot of a process.
    """
    if cluster_id and not accept_empty:
        raise click.UsageError("--cluster-id needs --accept-empty")
    with administration(instance, changes=True) as admin:
        done = upkeep.repair(admin)
        if accept_empty:
            accepted = upkeep.accept(admin, cluster_id or known_cluster(instance))
    show_rows([each._asdict() for each in done], ("subject", "problem", "repair"), output)
    if accept_empty:
        show_one({"cluster_id": accepted.cluster, "generation": accepted.generation}, output)


@command.command()
@click.option("--readers", type=FILE, metavar="FILE",
              help="Let the users in FILE, one user:password per line, read all and write reports, and no other readers.")  # fmt: skip
@click.option("--writers", type=FILE, metavar="FILE",
              help="Let the users in FILE change all, and no other writers. The own user must be among them.")  # fmt: skip
@click.option("--no-readers", is_flag=True, help="Take the rights of all readers away.")
@output_option
@instance_options()
def access(
    instance: Instance, readers: Path | None, writers: Path | None, no_readers: bool, output: str
) -> None:  # fmt: skip
    """Show or set the users of ZooKeeper that may change or read the configuration.

    Proxies need to read it and to write their reports: give their auth_file a user of --readers, and all other
    processes and commands one of --writers. All parts of the configuration get these rights, and those to come.
    """
    if readers is not None and no_readers:
        raise click.UsageError("--no-readers and --readers exclude each other")
    with administration(instance) as admin:
        if readers is None and writers is None and not no_readers:
            found = admin.store.users()
        else:
            reading = [] if no_readers else credentials(readers, "--readers")
            found = store_users.set_users(admin, credentials(writers, "--writers"), reading)
    show_rows([each._asdict() for each in found], ("user", "rights", "digest"), output)


def credentials(file: Path | None, option: str) -> list[str] | None:
    """The lines `user:password` of a file that only its owner may read; None without a file. Raises CommandError."""
    if file is None:
        return None
    if fault := secret_fault(file, 1, option):
        raise CommandError(fault, USAGE)
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
    if not lines or not all(line.partition(":")[0] and line.partition(":")[2] and line.isascii() for line in lines):
        raise CommandError(f"{file}: invalid content: use one line user:password per user, in ASCII", USAGE)
    return lines


@command.command()
@click.option("--forget", metavar="NAME", help="Expect the process NAME no more: it will not come back.")
@output_option
@instance_options()
def members(instance: Instance, forget: str | None, output: str) -> None:
    """List the processes that are expected to apply each change. Exit code 1 when one lags or has no contact.

    A process is expected from its first report until it stops in order. One that was killed and is not started again
    has to be forgotten, or every change waits for it and warns.
    """
    with administration(instance) as admin:
        if forget is not None:
            members_verbs.forget(admin, forget)
        rows = members_verbs.states(admin)
    show_rows(rows, ("name", "state", "behind", "reported_s_ago", "pid"), output)
    raise SystemExit(0 if all(row["state"] == "current" for row in rows) else FAILED)


def known_cluster(instance: Instance) -> str | None:
    """The cluster id in the snapshots of the data directory. Raises CommandError when they differ."""
    saved = [snapshot.load(instance.data / name) for name in SNAPSHOTS]
    found = {each.identity.cluster for each in saved if each is not None and each.identity is not None}
    if len(found) > 1:
        raise CommandError(f"{instance.data}: its snapshots name several clusters: use --cluster-id", CONFLICT)
    return next(iter(found), None)

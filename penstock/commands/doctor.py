"""`penstock doctor`: checks of this machine, with advice."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from common.quoting import escaped
from penstock.commands import replicas
from penstock.doctor import access, machine, replication, software, storage, stored_secrets
from penstock.doctor.finding import DoctorFinding
from penstock.terminal.output import is_for_scripts, output_option, show_value
from penstock.up.directory import SECRETS_KEY
from penstock.up.files import read_running

MARKS = {"ok": click.style("ok     ", fg="green"), "note": click.style("note   ", fg="yellow")}
MARKS["missing"] = click.style("MISSING", fg="red", bold=True)


def findings(
    data: Path, certificates: Iterable[Path] = (), config: str = "", secrets_key: Path | None = None
) -> Iterator[DoctorFinding]:
    yield software.python()
    yield software.libraries()
    yield software.native_modules()
    yield software.compiler()
    yield from software.languages()
    yield from software.programs()
    yield from (machine.open_files(), machine.memory(), machine.dirty_pages(), machine.overcommit(), machine.clock())
    yield from (storage.room(data), storage.file_system(data), storage.sync_time(data))
    yield from map(software.certificate, certificates)
    running = read_running(data) or {}
    yield from replication.groups(replicas.states(running))
    yield from replication.sessions(config)
    yield from access.access(config)
    own, file = (data / "config").as_uri() if (data / "config").is_dir() else "", data / SECRETS_KEY
    root_keys = secrets_key or (file if file.exists() and not config else None)
    yield from stored_secrets.of_applications(config or running.get("config", own), root_keys)


@click.command("doctor")
@click.option(
    "--data",
    default="./.penstock",
    envvar="PENSTOCK_DATA",
    show_envvar=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Check the disk of data directory DIR, and the replicas of its `up` (default ./.penstock).",
)
@click.option(
    "--tls-cert",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check when this certificate of a proxy expires; repeatable.",
)
@click.option(
    "--config",
    default="",
    envvar="PENSTOCK_CONFIG",
    show_envvar=True,
    metavar="URL",
    help="Check that the coordination of broker groups at URL answers, how long its sessions are, ZooKeeper's access "
    "lists, and how the secrets of applications are stored there (default: those of DIR).",
)
@click.option(
    "--secrets-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check that this file has all root keys that the applications need (default: that of DIR).",
)
@output_option
def command(data: Path, tls_cert: tuple[Path, ...], config: str, secrets_key: Path | None, output: str) -> None:
    """Check this machine and show what to do. Exit code 1 when something is missing that Penstock needs."""
    found = list(findings(data.absolute(), tls_cert, config, secrets_key))
    lacking = [each for each in found if each.state == "missing"]
    if is_for_scripts(output):
        show_value({"ok": not lacking, "findings": [each.to_value() for each in found]}, output)
    else:
        show(found, lacking)
    raise SystemExit(1 if lacking else 0)


def show(found: list[DoctorFinding], lacking: list[DoctorFinding]) -> None:
    width = max(len(each.subject) for each in found)
    for each in found:
        click.echo(f"{MARKS[each.state]}  {each.subject:<{width}}  {escaped(each.words)}")
        if each.advice:
            click.echo(f"{'':<7}  {'':<{width}}  → {escaped(each.advice)}")
    words = f"{len(lacking)} requirements are missing" if lacking else "no requirement is missing"
    click.echo(f"\nPenstock can{'not' if lacking else ''} run here: {words}.")

"""`penstock backup`: backups of an engine's log beside the running engine, and their way back."""

from pathlib import Path
from typing import Any

import click

from common.utc import utc
from engine.log.offline.backup import Manifest, back_up, check, read_manifest, restore
from engine.log.offline.directory import find
from penstock.commands.log import errors_as_sentences
from penstock.terminal.exits import NOT_FOUND, CommandError, CommandGroup
from penstock.terminal.output import output_option, show_one
from penstock.terminal.progress import say, shown

FOLDER = click.Path(file_okay=False, path_type=Path)
THERE = click.Path(file_okay=False, exists=True, path_type=Path)


@click.group("backup", cls=CommandGroup)
def command() -> None:
    """Back up the messages of an engine while it runs, verify the backup, and restore it.

    The configuration has a backup of its own: `penstock config export`.

    \b
    penstock backup create .penstock /mnt/backup
    penstock backup verify /mnt/backup
    penstock backup restore /mnt/backup /srv/penstock/engine
    """


class CopiedBytes:
    """Shows each file as it is done, and adds up what was copied."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, name: str, size: int) -> None:
        self.total += size
        say(f"{name}: {self.total / 1e6:,.0f} MB")


def row(manifest: Manifest, target: Path, **more: Any) -> dict[str, Any]:
    """A backup as it is shown."""
    return {
        "backup": str(target),
        "made_at": utc(manifest.made_at_ms),
        "log_id": manifest.log_id,
        "segments": sum(name.endswith(".seg") for name in manifest.files),
        "mb": round(manifest.size / 1e6, 1),
        **more,
    }


@command.command("create")
@click.argument("directory", metavar="DIR", type=THERE)
@click.argument("target", metavar="TARGET", type=FOLDER)
@output_option
def create(directory: Path, target: Path, output: str) -> None:
    """Copy the log of data directory DIR into the folder TARGET. The engine goes on meanwhile.

    Full segments that have not changed since the last backup into TARGET are not copied again. Every message that was
    stored before the command began is in the backup. What retention has deleted since the last one leaves it.
    """
    copied = CopiedBytes()
    with errors_as_sentences(), shown():
        made = back_up(Path(find(directory)), target, copied)
    show_one(row(made, target, copied_mb=round(copied.total / 1e6, 1)), output)


@command.command("verify")
@click.argument("target", metavar="TARGET", type=THERE)
@output_option
def verify(target: Path, output: str) -> None:
    """Read every byte of a backup. Exit code 1 when a file is not as it was copied."""
    with errors_as_sentences(), shown():
        show_one(row(check(target, CopiedBytes()), target), output)


@command.command("show")
@click.argument("target", metavar="TARGET", type=THERE)
@output_option
def show(target: Path, output: str) -> None:
    """Show when a backup was made, and its size, without reading it."""
    with errors_as_sentences():
        manifest = read_manifest(target)
        if manifest is None:
            raise CommandError(f"{target}: is no backup", NOT_FOUND)
        show_one(row(manifest, target), output)


@command.command("restore")
@click.argument("target", metavar="TARGET", type=THERE)
@click.argument("directory", metavar="DIR", type=FOLDER)
@output_option
def restore_command(target: Path, directory: Path, output: str) -> None:
    """Make the data directory DIR, new or empty, from a backup. Every byte is verified.

    The engine that starts on DIR reads the whole log once. Proxies that knew a later state of this log refuse it until
    `penstock broker-group accept` says that what came after the backup is lost.
    """
    with errors_as_sentences(), shown():
        show_one(row(restore(target, directory, CopiedBytes()), target, directory=str(directory)), output)

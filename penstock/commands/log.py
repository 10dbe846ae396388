"""`penstock log`: checks and repair of a stopped engine's data directory."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from common.quoting import escaped
from common.utc import utc_ms
from engine.errors import EngineError, LockedError
from engine.log.offline.directory import Directory, NoLogError, opened
from engine.log.offline.diverged import DivergedFolder, diverged_folders, remove_diverged
from engine.log.offline.dump import DumpQuery, dump
from engine.log.offline.finding import DAMAGE, Finding
from engine.log.offline.repair import carry_out, plan
from engine.log.offline.stats import LogStats, count
from engine.log.offline.verify import Totals, verify
from penstock.terminal.confirming import confirm, yes_option
from penstock.terminal.exits import CONFLICT, FAILED, NOT_FOUND, CommandError, CommandGroup
from penstock.terminal.output import is_for_scripts, output_option, show_rows, show_value, table

BATCH_COLUMNS = ("position", "kind", "topic", "queue", "offset", "records", "size", "stored_at")
RECORD_COLUMNS = ("topic", "queue", "offset", "stored_at", "id", "key", "size")
DIVERGED_COLUMNS = ("name", "kind", "segments", "bytes", "at")
TOPIC_COLUMNS = ("topic", "batches", "records", "bytes", "records_a_batch")

directory_argument = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group("log", cls=CommandGroup)
def command() -> None:
    """Verify, dump, count and repair the log in data directory DIR while its engine is stopped.

    \b
    penstock log verify .penstock
    penstock log dump .penstock --topic orders --queue 0 --records --limit 20
    penstock log stats .penstock --top 5
    penstock log repair .penstock          # shows the steps; --yes makes them
    penstock log diverged .penstock        # what replication has put aside; --remove NAME removes it
    """


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Turn the engine's errors into sentences with an exit code."""
    try:
        yield
    except (EngineError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        codes: dict[type[Exception], int] = {LockedError: CONFLICT, NoLogError: NOT_FOUND}
        raise CommandError(str(error), codes.get(type(error), FAILED)) from error


@contextmanager
def held(path: Path) -> Iterator[Directory]:
    """The directory with its lock held."""
    with errors_as_sentences(), opened(path) as directory:
        yield directory


@command.command("verify")
@directory_argument
@output_option
def verify_command(directory: Path, output: str) -> None:
    """Read every byte and report damage, one line each: file, position, lost bytes and records.

    Exit code 0 without damage, 1 with damage. A torn tail after a crash is reported but is not damage: its records were
    never confirmed, and the next start cuts it.
    """
    found: list[Finding] = []

    def report(finding: Finding) -> None:
        found.append(finding)
        if not is_for_scripts(output):
            click.echo(str(finding))

    with held(directory) as opened_directory:
        totals = verify(opened_directory, report)
    if is_for_scripts(output):
        value = {"ok": not totals.damage, **vars(totals), "findings": [each.to_value() for each in found]}
        show_value(value, output)
    else:
        click.echo(verdict(totals))
    raise SystemExit(1 if totals.damage else 0)


def verdict(totals: Totals) -> str:
    """The last line."""
    seen = f"{totals.segments} segments, {totals.bytes} bytes, {totals.batches} batches, {totals.records} records"
    if totals.damage:
        return f"DAMAGED: {totals.damage} findings of damage in {seen}"
    torn = (
        f"; a torn tail of {totals.torn_tail_bytes} bytes, which the next start cuts" if totals.torn_tail_bytes else ""
    )
    return f"good: {seen}{torn}"


@command.command("dump")
@directory_argument
@click.option("--topic", metavar="TOPIC", help="Print only this topic.")
@click.option("--queue", type=click.IntRange(0), metavar="N", help="Print only queue N.")
@click.option(
    "--from",
    "start",
    type=click.IntRange(0),
    default=0,
    metavar="OFFSET",
    help="Start at OFFSET of each queue (default 0).",
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Print at most N lines (default: all).")
@click.option("--records", is_flag=True, help="Print one line per message instead of one line per batch.")
@output_option(stream=True)
def dump_command(
    directory: Path, topic: str | None, queue: int | None, start: int, limit: int | None, records: bool, output: str
) -> None:
    """Print batches, or with --records their messages, in the order of the log."""
    columns = RECORD_COLUMNS if records else BATCH_COLUMNS
    with held(directory) as opened_directory:
        if output != "json":
            click.echo("  ".join(name.upper().replace("_", " ") for name in columns))
        for row in dump(opened_directory, DumpQuery(topic, queue, start, limit, records)):
            click.echo(json.dumps(row) if output == "json" else line(row, columns))


def line(row: dict[str, Any], columns: tuple[str, ...]) -> str:
    """One row as text. The columns of a stream cannot be aligned."""
    if "damage" in row:
        return f"DAMAGE file={row['file']} position={row['position']}: {row['bytes']} {row['damage']}"
    cells = {**row, "stored_at": utc_ms(row["stored_at_ms"])}
    return "  ".join("-" if cells[name] is None else escaped(str(cells[name])) for name in columns)


@command.command("stats")
@directory_argument
@click.option(
    "--top", type=click.IntRange(0), default=10, metavar="N", help="Show the N topics with the most bytes (default 10)."
)
@output_option
def stats_command(directory: Path, top: int, output: str) -> None:
    """Count segments, batches, records and bytes, in total and by topic."""
    with held(directory) as opened_directory:
        stats = count(opened_directory)
        topics = topic_rows(opened_directory, stats, top)
    value = {name: amount for name, amount in vars(stats).items() if name != "topics"}
    value["records_a_batch"] = mean(stats.records, stats.batches)
    value["topics"] = len(stats.topics)
    if is_for_scripts(output):
        show_value({**value, "top": topics}, output)
        return
    for name, amount in value.items():
        click.echo(f"{name:<16}{amount}")
    for text in ("", *table(topics, TOPIC_COLUMNS)) if topics else ():
        click.echo(text)


def topic_rows(directory: Directory, stats: LogStats, top: int) -> list[dict[str, Any]]:
    """The topics with the most bytes."""
    largest = sorted(stats.topics.items(), key=lambda item: -item[1]["bytes"])[:top]
    return [
        {
            "topic": directory.topic_name(topic_id) or f"id {topic_id}",
            **held_,
            "records_a_batch": mean(held_["records"], held_["batches"]),
        }
        for topic_id, held_ in largest
    ]


def mean(total: int, count_: int) -> float:
    return round(total / count_, 2) if count_ else 0.0


@command.command("repair")
@directory_argument
@click.option("--yes", is_flag=True, help="Make the repairs (default: only show them).")
@output_option
def repair_command(directory: Path, yes: bool, output: str) -> None:
    """Rebuild damaged indexes and the view, and cut a torn tail. Without --yes only the steps are shown.

    Bytes that do not verify stay, with all good records after them; consumers skip them. Exit code 1 when such damage
    is left.
    """
    with errors_as_sentences():
        wanted = plan(directory)
        done = []
        for step in carry_out(wanted) if yes else wanted.steps:
            done.append(step)
            if not is_for_scripts(output):
                click.echo(f"{'done' if yes else 'would do'}: {step}")
    if is_for_scripts(output):
        value = {"done": yes, "steps": [step.to_value() for step in done]}
        show_value({**value, "stays": [each.to_value() for each in wanted.stays]}, output)
    else:
        for each in wanted.stays:
            click.echo(f"stays: {each}")
        if not yes:
            click.echo(
                f"Nothing was changed. {'Use --yes to make these repairs.' if done else 'There is nothing to repair.'}"
            )
        elif not done:
            click.echo("There was nothing to repair.")
    raise SystemExit(1 if any(each.what == DAMAGE for each in wanted.stays) else 0)


@command.command("diverged")
@directory_argument
@click.option("--remove", multiple=True, metavar="NAME", help="Remove this folder and its messages; repeatable.")
@yes_option
@output_option
def diverged_command(directory: Path, remove: tuple[str, ...], yes: bool, output: str) -> None:
    """List what a broker with replicas has put aside because its master had something else, or remove some of it.

    Its engine may run. Each folder is a data directory: `penstock log dump DIR/diverged/NAME` shows its messages.
    """
    with errors_as_sentences():
        if remove:
            confirm(f"Remove {', '.join(remove)} below {directory}/diverged for good?", yes)
            found = [remove_diverged(directory, name) for name in remove]
        else:
            found = diverged_folders(directory)
    show_rows([_diverged_row(each) for each in found], DIVERGED_COLUMNS, output)


def _diverged_row(each: DivergedFolder) -> dict[str, Any]:
    return {
        "name": each.name,
        "kind": each.kind,
        "segments": each.segments,
        "bytes": each.bytes,
        "at": utc_ms(each.at_ms),
    }

"""`penstock pipeline archive prune`, `compact` and `hours`."""

import time
from dataclasses import asdict

import click

from penstock.commands.pipeline.job_options import job_session, master_option, show_progress
from penstock.terminal.exits import Command
from penstock.terminal.output import output_option, show_one, show_rows
from pipeline.archive.archive import RANGE_MESSAGES
from pipeline.archive.compaction import plan_compaction, run_compaction
from pipeline.archive.hours import archived_hours
from pipeline.archive.prune import PrunePolicy, plan_prune, run_prune

DAY_MS, GIB = 86_400_000, 1 << 30


@click.command(cls=Command)
@click.argument("directory")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--older-than-days", type=click.FloatRange(0), metavar="DAYS",
    help="Remove ranges whose newest hour ended so many days ago.",
)  # fmt: skip
@click.option(
    "--max-gib", type=click.FloatRange(0), metavar="GIB",
    help="Remove the oldest ranges until the files of these topics have at most GIB GiB.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@output_option
def prune(
    directory: str, topics: tuple[str, ...], older_than_days: float | None, max_gib: float | None, dry_run: bool,
    output: str,
) -> None:  # fmt: skip
    """Remove old ranges of an archive by policy. The manifest says what was pruned, and verify accepts it.

    Whole ranges are removed, per queue from the oldest on. A later `archive run` does not archive them again.

    \b
    penstock pipeline archive prune /srv/archive --older-than-days 90 --dry-run
    """
    if older_than_days is None and max_gib is None:
        raise click.UsageError("give --older-than-days, --max-gib, or both")
    now_ms = int(time.time() * 1000)
    policy = PrunePolicy(
        None if older_than_days is None else int(older_than_days * DAY_MS),
        None if max_gib is None else int(max_gib * GIB),
    )
    plan = plan_prune(directory, topics, policy, now_ms)
    if not dry_run:
        run_prune(directory, plan, now_ms)
    files = sum(len(each.files) for each in plan.entries)
    found = {"dry_run": dry_run, "ranges": len(plan.entries), "messages": plan.messages, "files": files}
    show_one({**found, "bytes": plan.size_bytes, "kept_bytes": plan.kept_bytes}, output)


@click.command(cls=Command)
@click.argument("directory")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--range", "range_messages", type=click.IntRange(2), default=RANGE_MESSAGES, show_default=True, metavar="N",
    help="Join neighbouring ranges into ranges of at most N messages.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be joined, and change nothing.")
@master_option
@output_option
def compact(
    directory: str, topics: tuple[str, ...], range_messages: int, dry_run: bool, master: str, output: str
) -> None:  # fmt: skip
    """Join small ranges of an archive, and thereby their small files. Each row is checked against its hash on the way.

    Meanwhile, read the archive by its manifest (`pipeline.replay.archived_rows`): the directory has rows of old and of
    new files for a moment. Do not run two jobs on an archive at a time.

    \b
    penstock pipeline archive compact /srv/archive
    """
    began_s = time.monotonic()
    groups = plan_compaction(directory, topics, range_messages)
    found = {
        "dry_run": dry_run, "ranges": sum(map(len, groups)), "files": sum(len(each.files) for group in groups for each in group),
        "messages": sum(each.count for group in groups for each in group), "new_ranges": len(groups),
    }  # fmt: skip
    if groups and not dry_run:
        with job_session("compact", master) as spark:
            made = run_compaction(spark, directory, groups, show_progress)
        found["new_files"] = sum(len(each.files) for each in made)
    show_one({**found, "seconds": round(time.monotonic() - began_s, 1)}, output)


@click.command(cls=Command)
@click.argument("directory")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@output_option
def hours(directory: str, topics: tuple[str, ...], output: str) -> None:
    """Show what an archive has per topic and hour. Late: rows came after a later hour had been archived."""
    rows = [asdict(each) for each in archived_hours(directory, topics)]
    show_rows(rows, ("topic", "hour", "messages", "files", "size_bytes", "is_late"), output)

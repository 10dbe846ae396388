"""`penstock pipeline archive`: run and verify. Its other commands: archive_care.py."""

import time

import click

from penstock.commands.pipeline.archive_care import compact, hours, prune
from penstock.commands.pipeline.archive_schema import schema
from penstock.commands.pipeline.job_options import job_session, master_option, proxy_options, show_progress
from penstock.terminal.exits import FAILED, Command, CommandError, CommandGroup
from penstock.terminal.output import output_option, show_one
from pipeline.archive.archive import RANGE_MESSAGES, plan_archive, run_archive, verify_archive

FAULTS_SHOWN_MAX = 20


@click.group(cls=CommandGroup, name="archive")
def command() -> None:
    """Copy topics into Parquet files with a manifest; verify, compact and prune these."""


@command.command(cls=Command, name="run")
@click.argument("directory")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--start", default="earliest", show_default=True, metavar="PLACE", help="Begin at earliest, latest, or a time."
)
@click.option("--end", default="latest", show_default=True, metavar="PLACE", help="End before latest, or a time.")
@click.option(
    "--group", default="spark", show_default=True, metavar="GROUP", help="Group whose grant is used; it is not moved."
)
@click.option(
    "--range", "range_messages", type=click.IntRange(1), default=RANGE_MESSAGES, show_default=True, metavar="N",
    help="Write at most N messages into one range of the manifest.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be archived, and change nothing.")
@master_option
@proxy_options("consumer")
@output_option
def run(
    directory: str, topics: tuple[str, ...], start: str, end: str, group: str, range_messages: int, dry_run: bool,
    master: str, endpoint: str, credential: str, output: str,
) -> None:  # fmt: skip
    """Archive what DIRECTORY does not have yet of the topics.

    DIRECTORY may be on this machine, or a URL of a file system that Arrow knows. Files are
    topic=NAME/hour=UTC/queue-….parquet. A run that was interrupted is continued by the next one. Do not run two at a time.

    \b
    penstock pipeline archive run /srv/archive orders payments --endpoint 127.0.0.1:9701 --credential spark.json
    """
    began_s = time.monotonic()
    options = {
        "endpoint": endpoint, "credential": credential, "topics": ",".join(topics), "start": start, "end": end,
        "group": group,
    }  # fmt: skip
    plan = plan_archive(options, directory, range_messages)
    summary = {"ranges": len(plan.ranges), "offsets": plan.messages, "files_to_remove": len(plan.orphans)}
    if dry_run or not plan.ranges:
        show_one({"dry_run": dry_run, **summary}, output)
        return
    with job_session("archive", master) as spark:
        entries = run_archive(spark, options, directory, plan, show_progress)
    seconds = time.monotonic() - began_s
    messages = sum(each.count for each in entries)
    show_one(
        {
            **summary, "messages": messages, "files": sum(len(each.files) for each in entries),
            "late_hours": sorted({f"{each.topic} {hour}" for each in entries for hour in each.late}),
            "seconds": round(seconds, 1), "messages_per_s": round(messages / seconds),
        },
        output,
    )  # fmt: skip


@command.command(cls=Command, name="verify")
@click.argument("directory")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@master_option
@output_option
def verify(directory: str, topics: tuple[str, ...], master: str, output: str) -> None:
    """Read every file of an archive and compare counts, offsets and hashes with the manifest.

    The exit code is 1 when anything differs, a range is missing between others, or a file is in no entry. What was
    pruned is not missing.
    """
    with job_session("verify", master) as spark:
        verdict = verify_archive(spark, directory, topics, show_progress)
    found = {"ranges": verdict.ranges, "messages": verdict.messages, "pruned": verdict.pruned}
    show_one({**found, "faults": len(verdict.faults)}, output)
    for fault in verdict.faults[:FAULTS_SHOWN_MAX]:
        click.echo(fault, err=True)
    if verdict.faults:
        raise CommandError(f"archive {directory}: {len(verdict.faults)} faults", FAILED)


for _each in (prune, compact, hours, schema):
    command.add_command(_each)

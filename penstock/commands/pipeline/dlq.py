"""`penstock pipeline dlq`."""

import time

import click

from penstock.commands.pipeline.job_options import job_session, master_option, proxy_options
from penstock.terminal.exits import Command
from penstock.terminal.output import output_option, show_one
from penstock.terminal.progress import say
from pipeline.dead_letters.classes import dead_letter_classes, dead_letter_rows
from pipeline.dead_letters.report import PAGE, PLAN, write_dead_letter_report


@click.command(cls=Command, name="dlq")
@click.argument("group")
@click.option("--start", default="earliest", show_default=True, metavar="PLACE", help="Begin at earliest, or a time.")
@click.option("--end", default="latest", show_default=True, metavar="PLACE", help="End before latest, or a time.")
@click.option(
    "--report", required=True, metavar="DIR",
    help=f"Write {PAGE}, dead-letters.json and the plan {PLAN} into DIR, in place of earlier ones.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Count the dead letters, and write nothing.")
@master_option
@proxy_options("consumer")
@output_option
def command(
    group: str, start: str, end: str, report: str, dry_run: bool, master: str, endpoint: str, credential: str, output: str
) -> None:  # fmt: skip
    """Group the dead letters of GROUP by reason and by shape of their bodies, and plan their redrive.

    The application needs a grant: penstock app grant NAME --dead-letters GROUP. Nothing is redriven: the plan is a
    script whose commands an operator enables.

    \b
    penstock pipeline dlq readers --report reports/readers --endpoint 127.0.0.1:9701 --credential spark.json
    """
    began_s, until_ms = time.monotonic(), int(time.time() * 1000)
    options = {"endpoint": endpoint, "credential": credential, "start": start, "end": end}
    with job_session("dlq", master) as spark:
        rows = dead_letter_rows(spark, options, group)
        if dry_run:
            show_one({"dry_run": True, "dead_letters": rows.count()}, output)
            return
        found = dead_letter_classes(spark, rows, group, say)
        data = write_dead_letter_report(found, report, until_ms)
    summary = {"dead_letters": found.letters, "classes": found.class_count, "commands": len(data["redrive"])}
    seconds = round(time.monotonic() - began_s, 1)
    show_one({**summary, "report": f"{report}/{PAGE}", "plan": f"{report}/{PLAN}", "seconds": seconds}, output)

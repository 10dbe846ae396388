"""`penstock pipeline replay`."""

import time

import click

from penstock.commands.exits import Command
from penstock.commands.output import output_option, show_one
from penstock.commands.pipeline.job_options import job_session, master_option, proxy_options
from pipeline.replay import FIELDS, archived_rows, replay, rows_to_replay


@click.command(cls=Command, name="replay")
@click.argument("directory")
@click.argument("topic")
@click.argument("target")
@click.option(
    "--where", default="", metavar="SQL", help="Replay the rows that this condition of Spark's SQL holds for."
)
@click.option(
    "--set", "changes", multiple=True, metavar="FIELD=SQL",
    help=f"Replace a field ({', '.join(FIELDS)}) by an expression of Spark's SQL; may be given several times.",
)  # fmt: skip
@click.option(
    "--rate", type=click.IntRange(1), metavar="N", help="Send at most N messages per second (default: no limit)."
)
@click.option(
    "--ids", type=click.Choice(["kept", "new"]), default="new", show_default=True,
    help="Keep the messages' ids, or make new ones of topic, queue and offset.",
)  # fmt: skip
@click.option(
    "--refused", default="", metavar="DIR", help="Write refused rows into DIR (default: the first one ends the job)."
)
@click.option("--dry-run", is_flag=True, help="Count the rows, and send nothing.")
@master_option
@proxy_options("producer")
@output_option
def command(
    directory: str, topic: str, target: str, where: str, changes: tuple[str, ...], rate: int | None, ids: str,
    refused: str, dry_run: bool, master: str, endpoint: str, credential: str, output: str,
) -> None:  # fmt: skip
    """Send the archived messages of TOPIC in DIRECTORY to the topic TARGET, those of a queue in their order.

    A job that failed may be repeated while its ids are in the target's de-duplication window.

    \b
    penstock pipeline replay /srv/archive orders orders-again --where "tag = 'large'" --endpoint 127.0.0.1:9700 --credential spark.json
    """
    began_s = time.monotonic()
    wanted = changes_of(changes)
    options = {"endpoint": endpoint, "credential": credential, "topic": target}
    with job_session("replay", master) as spark:
        rows = rows_to_replay(archived_rows(spark, directory, topic), where, ids == "kept", wanted)
        count = rows.count()
        if not dry_run:
            replay(rows, {**options, **({"refusedPath": refused} if refused else {})}, ids == "kept", rate or 0)
    show_one({"dry_run": dry_run, "rows": count, "seconds": round(time.monotonic() - began_s, 1)}, output)


def changes_of(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, _, sql = each.partition("=")
        if name not in FIELDS or not sql.strip():
            raise click.BadParameter(f"{each!r}: use FIELD=SQL with one of {', '.join(FIELDS)}", param_hint="--set")
        found[name] = sql
    return found

"""`penstock pipeline traffic`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from penstock.commands.pipeline.job_options import job_session, master_option, proxy_options
from penstock.terminal.exits import USAGE, Command, CommandError
from penstock.terminal.output import output_option, show_one
from penstock.terminal.progress import say
from pipeline.traffic.console_api import ConsoleApi
from pipeline.traffic.figures import TrafficFigures
from pipeline.traffic.forecast import topic_limits
from pipeline.traffic.measures import archived_messages, engine_messages, measure, minute_rows
from pipeline.traffic.minutes import CHUNK_S, KEPT_S, reported_chunks
from pipeline.traffic.refusals import RefusedMessages, totals
from pipeline.traffic.report import DATA, PAGE, ForecastBasis, write_traffic_report

HOUR_MS, GIB, TOPICS_CHARS_MAX = 3_600_000, 1 << 30, 32 << 20


@click.command(cls=Command, name="traffic")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--archive", "directory", default="", metavar="DIR", help="Read this archive, not the engine.")
@click.option("--start", default="earliest", show_default=True, metavar="PLACE", help="Begin at earliest, or a time.")
@click.option("--end", default="latest", show_default=True, metavar="PLACE", help="End before latest, or a time.")
@click.option(
    "--report", required=True, metavar="DIR",
    help=f"Write {PAGE}, {DATA} and the table `minutes` into DIR, in place of earlier ones.",
)  # fmt: skip
@click.option(
    "--sent-property", default="", metavar="NAME",
    help="Property with the time of sending in Unix milliseconds (default: the time in ids that Penstock assigns).",
)  # fmt: skip
@click.option("--application-property", default="", metavar="NAME", help="Property with the sender's name.")
@click.option(
    "--topics-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Judge the limits in FILE, the output of `penstock topic list -o json`.",
)  # fmt: skip
@click.option(
    "--retention-hours", type=click.FloatRange(min=0, min_open=True), default=72, show_default=True, metavar="HOURS",
    help="Retention of the engine, for topics without their own.",
)  # fmt: skip
@click.option(
    "--free-gib", type=click.FloatRange(0), metavar="GIB", help="Forecast the days until so much free space is used up."
)
@click.option("--console", default="", metavar="URL", help="Add what was refused, from this console's history.")
@click.option("--console-token", default="", metavar="FILE", help="File with a token for the console's API.")
@click.option(
    "--feed", is_flag=True, help="Also give the minutes to the console's history. The token needs role operator."
)
@click.option("--dry-run", is_flag=True, help="Count the messages, and write nothing.")
@master_option
@proxy_options("consumer", is_required=False)
@output_option
def command(
    topics: tuple[str, ...], directory: str, start: str, end: str, report: str, sent_property: str,
    application_property: str, topics_file: Path | None, retention_hours: float, free_gib: float | None,
    console: str, console_token: str, feed: bool, dry_run: bool, master: str, endpoint: str, credential: str, output: str,
) -> None:  # fmt: skip
    """Report the traffic of topics per minute: messages, bytes, latency, keys, skew, and a forecast.

    All topics of an archive are read when none is named.

    \b
    penstock pipeline traffic orders payments --report reports/traffic --endpoint 127.0.0.1:9701 --credential spark.json
    """
    _check(topics, directory, endpoint, credential, (start, end), console, console_token, feed)
    began_s = time.monotonic()
    api = ConsoleApi(console, console_token) if console else None
    basis = ForecastBasis(
        topic_limits(_text(topics_file)) if topics_file else {}, int(retention_hours * HOUR_MS),
        None if free_gib is None else int(free_gib * GIB),
    )  # fmt: skip
    options = {"endpoint": endpoint, "credential": credential, "start": start, "end": end}
    with job_session("traffic", master) as spark:
        messages = archived_messages(spark, directory, topics) if directory else engine_messages(spark, options, topics)
        if dry_run:
            show_one({"dry_run": True, "messages": messages.count()}, output)
            return
        figures = measure(spark, messages, report, topics, sent_property, application_property, say)
        refusals = _refusals(api, figures, is_until_now=not directory and end == "latest") if api else None
        source = f"Archive {directory}" if directory else f"Engine, from {start} to {end}"
        data = write_traffic_report(
            figures, basis, report, source, time.time(), sent_property, application_property, refusals
        )
        rows = minute_rows(spark, report, int(time.time()) - KEPT_S + CHUNK_S) if feed else []
    fed = api.feed(reported_chunks(rows)) if api and feed else None
    show_one(
        {
            **_summary(figures, data), **({} if refusals is None else {"refused": _count(refusals)}),
            **({} if fed is None else {"minutes_fed": fed}), "report": f"{report}/{PAGE}",
            "seconds": round(time.monotonic() - began_s, 1),
        },
        output,
    )  # fmt: skip


def _summary(figures: TrafficFigures, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topics": len(figures.topics), "messages": sum(each.messages for each in figures.topics),
        "limits_that_do_not_fit": sum(len(each["faults"]) for each in data["forecast"]),
        "days_until_full": data["disk"]["days"] if data["disk"] else None,
    }  # fmt: skip


def _count(refusals: Mapping[str, list[RefusedMessages]]) -> int:
    return sum(row.messages for own in refusals.values() for row in totals(own))


def _check(
    topics: tuple[str, ...], directory: str, endpoint: str, credential: str, places: tuple[str, str], console: str,
    console_token: str, feed: bool,
) -> None:  # fmt: skip
    if bool(directory) == bool(endpoint) or bool(directory) == bool(credential):
        raise click.UsageError("give either --archive, or --endpoint and --credential")
    if directory and places != ("earliest", "latest"):
        raise click.UsageError("--start and --end are of the engine: leave them out with --archive")
    if not directory and not topics:
        raise click.UsageError("name the topics")
    if bool(console) != bool(console_token) or (feed and not console):
        raise click.UsageError("--console and --console-token belong together, and --feed needs them")


def _refusals(api: ConsoleApi, figures: TrafficFigures, is_until_now: bool) -> dict[str, list[RefusedMessages]]:
    """Refused messages by topic, from the report's first minute to its last, or to now. Empty for an empty report."""
    if not figures.topics:
        return {}
    begin_s = min(each.first_s for each in figures.topics)
    end_s = int(time.time()) if is_until_now else max(each.last_s for each in figures.topics) + 60
    names = [*(each.topic for each in figures.topics), *figures.empty]
    return {name: api.refusals(name, begin_s, end_s) for name in names}


def _text(path: Path) -> str:
    try:
        with path.open() as file:
            text = file.read(TOPICS_CHARS_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}", USAGE) from error
    if len(text) > TOPICS_CHARS_MAX:
        raise CommandError(f"{path}: larger than {TOPICS_CHARS_MAX >> 20} MiB", USAGE)
    return text

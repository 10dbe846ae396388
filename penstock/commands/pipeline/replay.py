"""`penstock pipeline replay`."""

import time

import click
from pyspark.sql import DataFrame, SparkSession

from common.utc import utc
from penstock.commands.pipeline.job_options import job_session, master_option, proxy_options
from penstock.terminal.exits import Command
from penstock.terminal.output import output_option, show_one
from pipeline.errors import PipelineError
from pipeline.options import read_options
from pipeline.replay import FIELDS, archived_rows, replay, rows_to_replay, stored_rows
from pipeline.replay_journal import ReplayJournal, check_repetition
from pipeline.replay_time import timed
from pipeline.sink.window import id_window_s


@click.command(cls=Command, name="replay")
@click.argument("places", nargs=-1, required=True, metavar="[DIRECTORY TOPIC] TARGET")
@click.option(
    "--from-topic",
    default="",
    metavar="TOPIC",
    help="Replay what is stored of TOPIC, not an archive: give TARGET only.",
)
@click.option(
    "--from-endpoint",
    default="",
    metavar="HOST:PORT",
    help="With --from-topic: address of the source's consumer proxy.",
)
@click.option("--start", default="", metavar="PLACE", help="With --from-topic: begin at earliest, latest, or a time.")
@click.option("--end", default="", metavar="PLACE", help="With --from-topic: end before latest, or a time.")
@click.option(
    "--filter", default="", metavar="FILTER",
    help="With --from-topic: a filter as of a group, over tag, key and properties; see `penstock filter check`.",
)  # fmt: skip
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
    "--speed", type=click.FloatRange(0.01, 100_000), metavar="N",
    help="Keep the gaps between the times of storing, divided by N (default: send without gaps).",
)  # fmt: skip
@click.option(
    "--gap-max-s", type=click.FloatRange(0.001, 86_400), default=60, show_default=True, metavar="N",
    help="With --speed: wait at most N seconds in one gap.",
)  # fmt: skip
@click.option(
    "--ids", type=click.Choice(["kept", "new"]), default="new", show_default=True,
    help="Keep the messages' ids, or make new ones of topic, queue and offset.",
)  # fmt: skip
@click.option(
    "--refused", default="", metavar="DIR", help="Write refused rows into DIR (default: the first one ends the job)."
)
@click.option(
    "--journal", default="", metavar="FILE",
    help="Note in FILE when the replay first began, and refuse to repeat it after the target's window of ids.",
)  # fmt: skip
@click.option(
    "--window-endpoint", default="", metavar="HOST:PORT",
    help="Address of a consumer proxy of the target, which tells its window of ids (default: --from-endpoint).",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Count the rows, and send nothing.")
@master_option
@proxy_options("producer")
@output_option
def command(
    places: tuple[str, ...], from_topic: str, from_endpoint: str, start: str, end: str, filter: str, where: str,
    changes: tuple[str, ...], rate: int | None, speed: float | None, gap_max_s: float, ids: str, refused: str,
    journal: str, window_endpoint: str, dry_run: bool, master: str, endpoint: str, credential: str, output: str,
) -> None:  # fmt: skip
    """Send the archived messages of TOPIC in DIRECTORY, or with --from-topic those of a topic, to the topic TARGET.

    Those of a queue keep their order. A job that failed may be repeated while its ids are in the target's de-duplication
    window.

    \b
    penstock pipeline replay /srv/archive orders orders-again --where "tag = 'large'" --endpoint 127.0.0.1:9700 --credential spark.json
    penstock pipeline replay --from-topic orders --from-endpoint 127.0.0.1:9701 orders-again --speed 10
        --endpoint 127.0.0.1:9700 --credential spark.json
    """
    began_s = time.monotonic()
    wanted, target = changes_of(changes), target_of(places, from_topic, from_endpoint, [start, end, filter])
    options = {"endpoint": endpoint, "credential": credential, "topic": target}
    source = {
        "endpoint": from_endpoint, "credential": credential, "topics": from_topic,
        "start": start or "earliest", "end": end or "latest", "filter": filter,
    }  # fmt: skip
    what = {"from": from_topic or f"{places[0]} {places[1]}", "to": target, "ids": ids}
    window = _window(window_endpoint or from_endpoint, credential, target)
    began_ms = _began_ms(journal, what, target, window) if not dry_run else 0
    with job_session("replay", master) as spark:
        rows = _source(spark, places, source if from_topic else None)
        told: dict[str, object] = {"dry_run": dry_run}
        if speed:
            rows, lasts_s = timed(rows.where(where) if where else rows, speed, gap_max_s)
            told["lasts_s"] = round(lasts_s, 1)
        chosen = rows_to_replay(rows, where, ids == "kept", wanted)
        if dry_run:
            told["rows"] = chosen.count()
        else:
            kept_aside = {"refusedPath": refused} if refused else {}
            told["rows"] = replay(chosen, {**options, **kept_aside}, ids == "kept", rate or 0)
    told["id_window_s"] = window
    if began_ms and window is not None:
        told["repeatable_until"] = utc(began_ms + window * 1000)
        if time.time() > began_ms / 1000 + window:
            text = f"replay: lasted longer than the {window:g} s for which topic {target} recognises an id: do not repeat it"
            click.echo(text, err=True)
    show_one({**told, "seconds": round(time.monotonic() - began_s, 1)}, output)


def _window(endpoint: str, credential: str, target: str) -> float | None:
    """The window of ids of the target, in seconds; None: not known."""
    if not endpoint:
        return None
    chosen = read_options({"endpoint": endpoint, "credential": credential, "topics": target})
    try:
        return id_window_s(chosen.endpoints, target)
    except PipelineError as error:
        click.echo(f"replay: the window of ids of topic {target} is not known: {error}", err=True)
        return None


def _began_ms(journal: str, what: dict[str, str], target: str, window: float | None) -> int:
    """When this replay first began. Raises PipelineError when it began too long ago."""
    now_ms = int(time.time() * 1000)
    if not journal:
        return now_ms
    began_ms = ReplayJournal(journal, what).began_ms(now_ms)
    check_repetition(target, began_ms, now_ms, window, journal)
    return began_ms


def _source(spark: SparkSession, places: tuple[str, ...], options: dict[str, str] | None) -> DataFrame:
    return archived_rows(spark, places[0], places[1]) if options is None else stored_rows(spark, options)


def target_of(places: tuple[str, ...], from_topic: str, from_endpoint: str, of_topic: list[str]) -> str:
    """The target among the arguments. Raises UsageError when they do not fit the source."""
    if from_topic:
        if len(places) != 1 or not from_endpoint:
            raise click.UsageError("--from-topic: give --from-endpoint and one argument, TARGET")
    elif len(places) != 3:
        raise click.UsageError("give DIRECTORY, TOPIC and TARGET, or --from-topic and TARGET")
    elif from_endpoint or any(of_topic):
        raise click.UsageError("--from-endpoint, --start, --end and --filter are for --from-topic: use --where")
    return places[-1]


def changes_of(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, _, sql = each.partition("=")
        if name not in FIELDS or not sql.strip():
            raise click.BadParameter(f"{each!r}: use FIELD=SQL with one of {', '.join(FIELDS)}", param_hint="--set")
        found[name] = sql
    return found

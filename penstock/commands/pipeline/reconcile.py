"""`penstock pipeline reconcile`: archive, kafka, sent."""

from collections.abc import Callable
from typing import Any

import click
from pyspark.sql import SparkSession

from penstock.commands.pipeline.job_options import job_session, master_option, proxy_options
from penstock.terminal.exits import FAILED, Command, CommandError, CommandGroup
from penstock.terminal.output import is_for_scripts, output_option, show_one
from penstock.terminal.progress import say
from pipeline.errors import OptionsError
from pipeline.options import EARLIEST, PLACE_RULE, StartAt, place
from pipeline.reconcile.comparison import DifferenceKind, compare
from pipeline.reconcile.kafka_side import KafkaRows
from pipeline.reconcile.kafka_source import KafkaLogin
from pipeline.reconcile.report import summary, write_report
from pipeline.reconcile.sides import ArchiveRows, ComparedSide, SentRows, engine_and_archive, engine_rows

MakeSides = Callable[[SparkSession], tuple[ComparedSide, ComparedSide]]


@click.group(cls=CommandGroup, name="reconcile")
def command() -> None:
    """Compare the messages of a topic on two sides, by id and content.

    Missing, doubled and altered messages are counted and listed. The exit code is 1 when anything differs.
    Nothing is changed on either side.
    """


def shared_options(command: Callable) -> Callable:
    """Range, group, report, dry run, master and output."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Show what would be compared, and read no message."),
        click.option(
            "--report", required=True, metavar="DIR",
            help="Write report.md, report.json and the table `findings` into DIR, in place of earlier ones.",
        ),
        click.option(
            "--group", default="spark", show_default=True, metavar="GROUP",
            help="Group whose grant is used; it is not moved.",
        ),
        click.option(
            "--end", default="latest", show_default=True, metavar="PLACE", help="End before latest, or a time."
        ),
        click.option(
            "--start", default="earliest", show_default=True, metavar="PLACE",
            help="Begin at earliest, latest, or a time.",
        ),
        master_option,
        output_option,
    ):  # fmt: skip
        command = option(command)
    return command


@command.command(cls=Command)
@click.argument("directory")
@click.argument("topic")
@proxy_options("consumer")
@shared_options
def archive(directory: str, topic: str, **options: Any) -> None:
    """Compare the archive DIRECTORY of TOPIC with the engine, where both have offsets.

    \b
    penstock pipeline reconcile archive /srv/archive orders --report reports/orders --endpoint 127.0.0.1:9701 --credential spark.json
    """
    _run(topic, options, lambda spark: engine_and_archive(_reading(options), topic, directory))


@command.command(cls=Command)
@click.argument("topic")
@click.option("--bootstrap", required=True, metavar="HOST:PORT", help="Brokers of Kafka; several with commas between.")
@click.option("--kafka-topic", default="", metavar="TOPIC", help="Name of the topic in Kafka (default: TOPIC).")
@click.option("--security", default="plaintext", show_default=True, metavar="PROTOCOL", help="Protocol of Kafka.")
@click.option("--mechanism", default="", metavar="NAME", help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, with SASL.")
@click.option("--user", default="", metavar="NAME", help="User, with SASL.")
@click.option("--password-file", default="", metavar="FILE", help="Read the password from FILE.")
@click.option("--ca-file", default="", metavar="FILE", help="Certificates that sign the brokers', with TLS.")
@proxy_options("consumer")
@shared_options
def kafka(
    topic: str, bootstrap: str, kafka_topic: str, security: str, mechanism: str, user: str, password_file: str,
    ca_file: str, **options: Any,
) -> None:  # fmt: skip
    """Compare a Kafka topic with its copy in the engine: ids, keys and bodies.

    While messages come in, end at a time that both sides have passed. Needs penstock[kafka].

    \b
    penstock pipeline reconcile kafka orders --bootstrap kafka-1:9092 --end 2026-01-31T12:00:00Z \\
      --report reports/orders --endpoint 127.0.0.1:9701 --credential spark.json
    """
    login = KafkaLogin(bootstrap, security.upper(), mechanism, user, password_file, ca_file)
    start, end = _place("start", options["start"]), _place("end", options["end"])

    def sides(spark: SparkSession) -> tuple[ComparedSide, ComparedSide]:
        found = KafkaRows(login, kafka_topic or topic, start, end)  # before the engine's: what it has lies below
        return found, engine_rows(_reading(options), topic)

    _run(topic, options, sides)


@command.command(cls=Command)
@click.argument("table")
@click.argument("topic")
@click.option("--archive", "directory", default="", metavar="DIR", help="Compare with this archive, not the engine.")
@click.option("--subset", is_flag=True, help="TABLE is a part of what was sent: other messages are no difference.")
@proxy_options("consumer", is_required=False)
@shared_options
def sent(table: str, topic: str, directory: str, subset: bool, **options: Any) -> None:
    """Compare TABLE, which has what was sent to TOPIC, with what is stored.

    TABLE is Parquet, or JSON lines by its ending. Column id is required; key, tag, body, properties are compared where
    it has them. Column hash is the SHA-256 of the body in hexadecimal, in place of body.

    \b
    penstock pipeline reconcile sent sent.jsonl orders --report reports/orders --endpoint 127.0.0.1:9701 --credential spark.json
    """
    if bool(directory) == bool(options["endpoint"]) or bool(directory) == bool(options["credential"]):
        raise click.UsageError("give either --archive, or --endpoint and --credential")
    if directory and (options["start"], options["end"]) != ("earliest", "latest"):
        raise click.UsageError("--start and --end are of the engine: leave them out with --archive")

    def sides(spark: SparkSession) -> tuple[ComparedSide, ComparedSide]:
        stored = ArchiveRows(directory, topic) if directory else engine_rows(_reading(options), topic)
        return SentRows(spark, table), stored

    _run(topic, options, sides, (DifferenceKind.MISSING_LEFT,) if subset else ())


def _run(
    topic: str, options: dict[str, Any], make: MakeSides, ignored: tuple[DifferenceKind, ...] = ()
) -> None:  # fmt: skip
    output, folder = options["output"], options["report"]
    with job_session("reconcile", options["master"]) as spark:
        left, right = make(spark)
        if options["dry_run"]:
            found = {"dry_run": True, left.name: left.described(), right.name: right.described()}
            show_one({**found, "notes": [*left.notes, *right.notes]}, output)
            return
        result = compare(spark, left, right, folder, ignored, say)
        write_report(result, topic, folder)
    found = {name: value for name, value in summary(result).items() if name != "first"}
    if not is_for_scripts(output):
        found["sides"] = [f"{name}: {messages:,}" for name, messages in zip(result.names, result.counts, strict=True)]
        found["differences"] = [f"{count:,} {result.said(kind)}" for kind, count in result.differences.items()]
    show_one(found, output)
    if not result.is_equal:
        raise CommandError(f"topic {topic}: {left.name} and {right.name} differ: see {folder}/report.md", FAILED)


def _reading(options: dict[str, Any]) -> dict[str, str]:
    return {name: options[name] for name in ("endpoint", "credential", "start", "end", "group")}


def _place(name: str, text: str) -> StartAt:
    try:
        return place(text or EARLIEST)
    except (ValueError, TypeError, AttributeError) as error:
        raise OptionsError([f"{name} {text!r}: {PLACE_RULE}"]) from error

"""`penstock pipeline archive schema`."""

from typing import Any

import click

from common.utc import utc
from penstock.commands.pipeline.job_options import job_session, master_option, show_progress
from penstock.terminal.exits import Command
from penstock.terminal.output import output_option, show_rows
from pipeline.archive.json_bodies import TopicSchema, infer_schemas

SHOWN = ("topic", "field", "type", "count", "first_seen", "last_seen", "conflicts")


@click.command(cls=Command)
@click.argument("directory")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@master_option
@output_option
def schema(directory: str, topics: tuple[str, ...], master: str, output: str) -> None:
    """Infer the schema of JSON bodies, and show its fields: types, when each was first and last seen, and conflicts.

    Only ranges that no earlier run has read are read. The schema of a topic is in DIRECTORY/_schema/TOPIC.json; read the
    rows with it by `pipeline.json_rows.json_rows`. A field of several types gets the most frequent one; bodies
    that do not fit are in column `malformed` then.

    \b
    penstock pipeline archive schema /srv/archive orders
    """
    with job_session("schema", master) as spark:
        found = infer_schemas(spark, directory, topics, show_progress)
    show_rows([row for each in found for row in _rows(each)], SHOWN, output)
    for each in found:
        if each.no_json:
            click.echo(f"topic {each.topic}: {each.no_json:,} of {each.bodies:,} bodies are no JSON object", err=True)


def _rows(found: TopicSchema) -> list[dict[str, Any]]:
    return [
        {
            "topic": found.topic, "field": row["field"], "type": row["type"], "count": row["count"],
            "first_seen": utc(row["first_ms"]), "last_seen": utc(row["last_ms"]),
            "conflicts": ", ".join(f"{kind}: {count}" for kind, count in row["conflicts"].items()),
        }
        for row in found.fields
    ]  # fmt: skip

"""`penstock migrate inventory`."""

import dataclasses
from contextlib import closing
from typing import Any

import click

from common.kafka.base import EARLIEST, END
from common.kafka.records import Partition
from migration.inventory import FoundTopic, find_groups, find_topics, notes, objections
from migration.sampling import TopicSample, sample
from penstock.commands.migrate.work import OpenedKafka, opened_kafka
from penstock.terminal.exits import Command
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows

TOPIC_COLUMNS = ("name", "partitions", "min_isr", "cleanup", "retention_h", "records", "can_move", "notes")
GROUP_COLUMNS = ("name", "state", "topics", "lag")
SAMPLED_PARTITIONS_MAX = 1_000


@click.command(cls=Command, name="inventory")
@click.argument("cluster")
@click.option("--prefix", default="", metavar="TEXT", help="List topics whose names begin with TEXT (default: all).")
@click.option(
    "--sample", "sampled", type=click.IntRange(0, 1_000), default=0, metavar="N",
    help="Read the newest N records per partition and tell what copying has to bend, for at most 1,000 partitions "
    "(default 0: none).",
)  # fmt: skip
@click.option("--groups", "with_groups", is_flag=True, help="List consumer groups and their lag in place of topics.")
@output_option
@instance_options()
def command(
    instance: Instance, cluster: str, prefix: str, sampled: int, with_groups: bool, output: str
) -> None:  # fmt: skip
    """List the topics of Kafka cluster CLUSTER, and what stands against their move.

    The cluster is one of `penstock kafka list`. Nothing is changed. A topic that cannot move has the reason in its last
    column; all columns are in -o json.
    """
    with administration(instance) as admin, opened_kafka(admin, cluster) as kafka:
        found = find_topics(kafka(), prefix=prefix)
        if with_groups:
            with closing(kafka.groups()) as groups:
                rows = [dataclasses.asdict(each) for each in find_groups(kafka(), groups, found)]
            show_rows(rows, GROUP_COLUMNS, output)
            return
        if sampled:
            samples = _samples(kafka, found, sampled)
            found = [dataclasses.replace(each, sample=samples.get(each.name)) for each in found]
    if not is_for_scripts(output) and not found:
        show_one({"cluster": cluster, "topics": 0}, output)
        return
    rows = [_row(each) for each in found]
    if not is_for_scripts(output):
        rows = [{**each, "notes": "; ".join(each["notes"])} for each in rows]
    show_rows(rows, TOPIC_COLUMNS, output)


def _row(topic: FoundTopic) -> dict[str, Any]:
    against, noted = objections(topic), notes(topic)
    hours = None if topic.retention_ms < 0 else round(topic.retention_ms / 3_600_000, 1)
    row = {**dataclasses.asdict(topic), "min_isr": topic.in_sync_min, "retention_h": hours}
    del row["in_sync_min"], row["groups"]
    return {**row, "can_move": "no" if against else "yes", "notes": [*against, *noted]}


def _samples(kafka: OpenedKafka, found: list[FoundTopic], count: int) -> dict[str, TopicSample]:
    wanted = [Partition(each.name, number) for each in found for number in range(each.partitions)]
    if len(wanted) > SAMPLED_PARTITIONS_MAX:
        raise click.UsageError(
            f"--sample: {len(wanted):,} partitions: use --prefix for at most {SAMPLED_PARTITIONS_MAX:,}"
        )
    ends, firsts = kafka().offsets(wanted, END), kafka().offsets(wanted, EARLIEST)
    reader = kafka.reader()
    try:
        return sample(
            reader, {each: at or 0 for each, at in ends.items()}, {each: at or 0 for each, at in firsts.items()}, count
        )
    finally:
        reader.close()

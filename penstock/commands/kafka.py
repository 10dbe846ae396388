"""`penstock kafka`: add, list, show, set, remove Kafka clusters, which topics may have as their home."""

import os
from contextlib import suppress
from typing import Any

import click

from common.admin import kafka_clusters, topics
from common.admin.kafka_clusters import KafkaClusterSettings
from common.config.definitions import KafkaClusterDefinition
from common.quoting import quoted
from penstock.terminal.exits import CONFLICT, CommandError, CommandGroup
from penstock.terminal.instance import Instance, administration, instance_options, note
from penstock.terminal.output import output_option, show_one, show_rows
from penstock.terminal.setting_options import settings_options, shown
from penstock.up.files import LATER, read_running
from penstock.up.ports import KAFKA_BRIDGE
from penstock.up.signals import LOOK

COLUMNS = ("name", "bootstrap", "security", "driver")


def row(cluster: KafkaClusterDefinition) -> dict[str, Any]:
    return {"name": cluster.name, "security": cluster.security, "driver": cluster.driver, **shown(cluster)}


@click.group(cls=CommandGroup)
def command() -> None:
    """Manage Kafka clusters. A topic whose home is a cluster is sent to it by the Kafka bridge: see docs/kafka.md.

    \b
    penstock kafka add main --bootstrap kafka-1:9092,kafka-2:9092
    penstock topic create orders --home kafka:main
    """


@command.command()
@click.argument("name")
@settings_options(KafkaClusterSettings)
@output_option
@instance_options()
def add(instance: Instance, name: str, output: str, settings: KafkaClusterSettings) -> None:
    """Add cluster NAME. A running bridge follows, and a running `penstock up` of DIR starts one.

    Passwords stay in a file on the bridge's machine: the configuration holds its path.
    """
    with administration(instance, changes=True) as admin:
        made = kafka_clusters.add(admin, name, settings)
    have_bridge_started(instance)
    show_one(row(made), output)


def have_bridge_started(instance: Instance) -> None:
    """Ask the `up` of the data directory for a bridge, where it has none and works by the same configuration."""
    running = read_running(instance.data)
    if running and running.get(LATER) == KAFKA_BRIDGE and running["config"] == instance.config():
        with suppress(ProcessLookupError):
            os.kill(running["pids"]["up"], LOOK)


@command.command("list")
@output_option
@instance_options()
def list_command(instance: Instance, output: str) -> None:
    """List the clusters by name."""
    with administration(instance) as admin:
        found = kafka_clusters.list_clusters(admin)
    show_rows([row(each) for each in found], COLUMNS, output)


@command.command()
@click.argument("name")
@output_option
@instance_options()
def show(instance: Instance, name: str, output: str) -> None:
    """Show cluster NAME."""
    with administration(instance) as admin:
        found, version = kafka_clusters.show(admin, name)
    show_one({**row(found), "version": version}, output)


@command.command("set")
@click.argument("name")
@settings_options(KafkaClusterSettings)
@output_option
@instance_options()
def set_command(instance: Instance, name: str, output: str, settings: KafkaClusterSettings) -> None:
    """Change how cluster NAME is reached. The bridge connects again; what is in flight is answered TIMEOUT."""
    if not settings:
        raise click.UsageError("no setting is given: use an option such as --bootstrap, see --help")
    with administration(instance, changes=True) as admin:
        changed = kafka_clusters.set_cluster(admin, name, settings)
    show_one(row(changed), output)


@command.command()
@click.argument("topic")
@click.option(
    "--partition", type=click.IntRange(0), metavar="N", help="Accept this partition only (default: all stopped)."
)
@click.option(
    "--start", type=click.IntRange(0), metavar="OFFSET", help="Go on at this offset of Kafka; needs --partition."
)
@click.option(
    "--skip", type=click.IntRange(0), metavar="OFFSET", help="Leave out the record at this offset; needs --partition."
)
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the audit journal and the log of the engine.")
@output_option
@instance_options("engine")
def accept(
    instance: Instance, topic: str, partition: int | None, start: int | None, skip: int | None, reason: str, output: str
) -> None:
    """Let the copy from Kafka into TOPIC go on where it has stopped.

    It stops where Kafka does not have what it had: the topic was made again, records were deleted before they were
    copied, or Kafka has lost records (then --start is needed). It also stops at a record that is too large for the
    engine, which --skip leaves out. `penstock topic show TOPIC` says why it stands still.
    """
    if (start is not None or skip is not None) and (partition is None or (start is not None and skip is not None)):
        raise click.UsageError("--start and --skip need --partition, and only one of them can be given")
    from penstock.commands import kafka_copies  # a client of Kafka: only for the commands that need one

    with administration(instance) as admin:
        copy = kafka_copies.copy_into(admin, topics.show(admin, topic)[0])
    if copy is None:
        raise CommandError(f"topic {quoted(topic)}: nothing is copied into it from Kafka", CONFLICT)
    rows = kafka_copies.accept(instance, copy, partition, start, skip, reason)
    note(instance, "accept", "topic", topic, None, {"reason": reason, "skip": skip, "partitions": rows})
    show_rows(rows, ("partition", "before", "start", "source"), output)


@command.command()
@click.argument("name")
@output_option
@instance_options()
def remove(instance: Instance, name: str, output: str) -> None:
    """Remove cluster NAME. Exit code 4 while it is a side of topics."""
    with administration(instance, changes=True) as admin:
        kafka_clusters.remove(admin, name)
    show_one({"removed": name}, output)

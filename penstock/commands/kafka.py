"""`penstock kafka`: add, list, show, set, remove Kafka clusters, which topics may have as their home."""

from typing import Any

import click

from common.admin import kafka_clusters
from common.admin.kafka_clusters import KafkaClusterSettings
from common.config.definitions import KafkaClusterDefinition
from penstock.commands.exits import CommandGroup
from penstock.commands.instance import Instance, administration, instance_options
from penstock.commands.output import output_option, show_one, show_rows
from penstock.commands.setting_options import settings_options, shown

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
    """Add cluster NAME. A running bridge follows; `penstock up` starts the bridge at its next start.

    Passwords stay in a file on the bridge's machine: the configuration holds its path.
    """
    with administration(instance, changes=True) as admin:
        made = kafka_clusters.add(admin, name, settings)
    show_one(row(made), output)


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
@click.argument("name")
@output_option
@instance_options()
def remove(instance: Instance, name: str, output: str) -> None:
    """Remove cluster NAME. Exit code 4 while it is the home of topics."""
    with administration(instance, changes=True) as admin:
        kafka_clusters.remove(admin, name)
    show_one({"removed": name}, output)

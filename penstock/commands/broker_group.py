"""`penstock broker-group`: the broker groups of a cluster and their engines."""

import socket
from typing import Any

import click

from common.admin import broker_group_verbs, broker_groups, placing
from common.admin.administrator import Administrator
from common.config.broker_group import ALL, WRITES, BrokerGroupDefinition
from common.config.definitions import TopicDefinition
from common.config.placed_topics import stored_placed_topics
from common.utc import utc
from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.commands.replicas import coordination_of
from penstock.terminal.engines import CommandLink, named
from penstock.terminal.exits import CONFLICT, NOT_FOUND, CommandError, CommandGroup
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import output_option, show_one, show_rows

COLUMNS = ("name", "address", "writes", "engine", "position", "recorded_at")
WIDE_COLUMNS = (*COLUMNS, "log_id")
TOPIC_COLUMNS = ("topic", "broker_groups", "queues", "first_queue", "read_only")
TIMEOUT_S = 3.0

force_option = click.option("--force", is_flag=True, help="Do it though messages are left behind, or may be.")


@click.group("broker-group", cls=CommandGroup)
def command() -> None:
    """Manage the broker groups of a cluster. Each holds its share of all queues, by the names of all groups.

    Adding or removing a group moves queues, but not the messages in them: both are refused once there are messages.

    \b
    penstock broker-group add group-1 10.0.0.1:9702
    penstock broker-group set group-1 10.0.0.7:9702
    penstock broker-group list
    penstock broker-group writes group-1 keyed
    penstock broker-group topics
    penstock broker-group accept group-1
    """


@command.command("list")
@output_option
@instance_options("engine")
def list_command(instance: Instance, output: str) -> None:
    """List the groups with their engines: whether they answer, and the log that was recorded for each."""
    with administration(instance) as admin:
        writes = {each.name: each.writes for each in broker_groups.list_groups(admin.store)}
        rows = [
            row(instance, admin, name, address) | {"writes": writes.get(name, ALL)}
            for name, address in instance.engines().items()
        ]
    show_rows(rows, COLUMNS, output, WIDE_COLUMNS)


def row(instance: Instance, admin: Administrator, name: str, address: tuple[str, int]) -> dict[str, Any]:
    """A group as it is recorded, and what its engine says now."""
    record = broker_group_verbs.record_of(admin, name)
    shown: dict[str, Any] = {"name": name, "address": f"{address[0]}:{address[1]}", "engine": "answers"}
    try:
        with AdminClient(address, instance.admin_key(), timeout_s=TIMEOUT_S) as engine:
            if record is not None and engine.hello.log_id != record.log_id:
                shown["engine"] = f"foreign: log {engine.hello.log_id}"
            elif record is not None and not engine.hello.term and engine.hello.end_position < record.position:
                shown["engine"] = f"older: its log ends at {engine.hello.end_position:,}"
    except (LinkError, OSError) as error:
        shown["engine"] = f"no answer ({error})"
    if record is not None:
        shown |= {"log_id": record.log_id, "position": record.position, "recorded_at": utc(record.at_ms)}
    return shown


@command.command()
@click.argument("name")
@click.argument("address", metavar="HOST:PORT[,…]")
@force_option
@output_option
@instance_options("engine")
def add(instance: Instance, name: str, address: str, force: bool, output: str) -> None:
    """Add group NAME with its engine, or its brokers, at HOST:PORT.

    Exit code 4 when other groups have messages or do not answer.
    """
    with administration(instance, changes=True) as admin:
        for other in broker_groups.list_groups(admin.store):
            _check_empty(instance, other, f"broker group {name}: cannot be added: queues would move to it", force)
        made = broker_group_verbs.add(admin, name, address)
    show_one({"name": made.name, "address": made.address}, output)


@command.command("set")
@click.argument("name")
@click.argument("address", metavar="HOST:PORT[,…]")
@click.option("--force", is_flag=True, help="Do it though the group's master is not among them.")
@output_option
@instance_options()
def set_command(instance: Instance, name: str, address: str, force: bool, output: str) -> None:
    """Change where the engine, or the brokers, of group NAME are. The proxies check that it is the same engine.

    Exit code 4 when the master of a group with replicas is not among them.
    """
    with administration(instance, changes=True) as admin:
        if not force:
            _check_master(instance, name, address)
        made = broker_group_verbs.set_address(admin, name, address)
    show_one({"name": made.name, "address": made.address}, output)


def _check_master(instance: Instance, name: str, address: str) -> None:
    """Without the master's address the proxies would reach no broker that takes messages."""
    with coordination_of(instance) as coordination:
        found, brokers = coordination.record(name), coordination.brokers(name)
    master = brokers.get(found.record.master) if found is not None else None
    if found is None or master is None or _resolved(master.address) in map(_resolved, address.split(",")):
        return
    raise CommandError(
        f"broker group {name}: its master {found.record.master} is at {master.address}, which is not among the addresses: "
        "name all of its brokers, or use --force", CONFLICT,
    )  # fmt: skip


def _resolved(address: str) -> tuple[str, str]:
    host, _, port = address.strip().rpartition(":")
    try:
        return socket.gethostbyname(host), port
    except OSError:
        return host, port


@command.command()
@click.argument("name")
@force_option
@output_option
@instance_options("engine")
def remove(instance: Instance, name: str, force: bool, output: str) -> None:
    """Remove group NAME. Exit code 4 when it has messages or does not answer."""
    with administration(instance, changes=True) as admin:
        own = next((group for group in broker_groups.list_groups(admin.store) if group.name == name), None)
        if own is None:
            raise CommandError(f"broker group {name}: not found", NOT_FOUND)
        if not force:
            placing.check_unused(admin, name)
        _check_empty(instance, own, f"broker group {name}: cannot be removed: messages would be left behind", force)
        broker_group_verbs.remove(admin, name)
    show_one({"removed": name}, output)


@command.command()
@click.argument("name")
@click.argument("messages", type=click.Choice(WRITES))
@output_option
@instance_options()
def writes(instance: Instance, name: str, messages: str, output: str) -> None:
    """Set which new messages group NAME takes: all, or only those that have to be there.

    With `keyed`, messages without a key go to other groups of their topic while one takes them, for maintenance or a
    slow disk. Messages with a key, or with an id of their own that is checked, have one place and still come, as do those
    of topics that are in this group alone. What the group has is pulled as ever.
    """
    with administration(instance, changes=True) as admin:
        made = broker_group_verbs.set_writes(admin, name, messages)
    show_one({"name": made.name, "writes": made.writes}, output)


@command.command()
@output_option
@instance_options()
def topics(instance: Instance, output: str) -> None:
    """List the topics that are placed on some of the broker groups, or have been.

    `first_queue` is the first queue that takes messages; `read_only` are the groups of the queues before it, which are
    only read. Change a topic's groups with `penstock topic set TOPIC --broker-group NAME`.
    """
    with administration(instance) as admin:
        rows = [_placed(each) for each in stored_placed_topics(admin.store).topics]
    show_rows(rows, TOPIC_COLUMNS, output)


def _placed(topic: TopicDefinition) -> dict[str, Any]:
    *earlier, _ = topic.ranges
    read_only = sorted({group for each in earlier for group in each.broker_groups or ("all",)})
    return {
        "topic": topic.name, "broker_groups": list(topic.broker_groups) or ["all"], "queues": topic.queues,
        "first_queue": topic.first_queue, "read_only": read_only,
    }  # fmt: skip


@command.command()
@click.argument("name")
@output_option
@instance_options("engine")
def accept(instance: Instance, name: str, output: str) -> None:
    """Make the engine that answers at the address of group NAME the group's own, though its log is another or older.

    Messages that only the log recorded before holds are not served any more.
    """
    places = instance.engines()
    if name not in places:
        raise CommandError(f"broker group {name}: not found: use one of {', '.join(places)}", NOT_FOUND)
    with named(name), CommandLink(name, places[name], instance.admin_key(), timeout_s=TIMEOUT_S) as engine:
        hello = engine.hello
    if len(places) > 1 and hello.broker_group != name:
        raise CommandError(
            f"broker group {name}: at its address answers the engine of broker group {hello.broker_group}: correct the "
            f"address with `penstock broker-group set {name} HOST:PORT`",
            CONFLICT,
        )
    with administration(instance) as admin:
        old, new = broker_group_verbs.accept(admin, name if len(places) > 1 else hello.broker_group, hello)
    before = {} if old is None else {"old_log_id": old.log_id, "old_position": old.position}
    show_one({"name": name, "log_id": new.log_id, "position": new.position, **before}, output)


def _check_empty(instance: Instance, group: BrokerGroupDefinition, problem: str, force: bool) -> None:
    """Check that the group's engine has no topics, so no messages. Raises CommandError; only warns with `force`."""
    try:
        with AdminClient(instance.leading(group.addresses), instance.admin_key(), timeout_s=TIMEOUT_S) as engine:
            found = engine.ask("topics", limit=1)["topics"]
        fault = f"broker group {group.name} has messages, of topic {found[0]['name']} for example" if found else ""
    except (AdminError, LinkError, OSError) as error:
        fault = f"broker group {group.name} does not answer: {error}"
    if not fault:
        return
    if not force:
        raise CommandError(f"{problem}: {fault}: use --force to do it all the same", CONFLICT)
    click.echo(f"warning: {problem}: {fault}", err=True)

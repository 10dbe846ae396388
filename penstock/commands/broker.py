"""`penstock broker`: the replicas of broker groups, and switches from one master to another."""

import threading
from typing import Any

import click

from common.cluster.coordination import Coordination
from common.config.errors import EntryNotFound
from common.utc import utc_ms
from controller.operator_switch import switch_master
from controller.reached_group import look_at, reached
from penstock.commands import replicas
from penstock.terminal.exits import CommandGroup
from penstock.terminal.instance import Instance, instance_options, note
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows

LIST_COLUMNS = ("broker_group", "broker", "role", "state", "epoch", "address")
BROKER_COLUMNS = (
    "broker",
    "role",
    "address",
    "log_epoch",
    "log_end",
    "gap_bytes",
    "lag_ms",
    "damaged",
    "repaired_bytes",
    "id_window_mib",
    "answer",
)
HISTORY_COLUMNS = ("at", "version", "epoch", "state", "master", "in_sync", "reason")
CONTROLLER_S_MAX = 1.0


@click.group("broker", cls=CommandGroup)
def command() -> None:
    """Show the replicas of broker groups, and change their masters.

    \b
    penstock broker list
    penstock broker show main
    penstock broker history main
    penstock broker switch main --to b
    """


@command.command("list")
@output_option
@instance_options()
def list_command(instance: Instance, output: str) -> None:
    """List the brokers of all groups with replicas: role, and state and epoch of the group. Asks no broker."""
    with replicas.coordination_of(instance) as coordination:
        rows = [row for name in coordination.groups() for row in _rows(coordination, name)]
    show_rows(rows, LIST_COLUMNS, output)


def _rows(coordination: Coordination, name: str) -> list[dict[str, Any]]:
    try:
        group = look_at(coordination, name)
    except EntryNotFound:
        return []  # its brokers have gone before it had a record
    record = group.record
    shared = {"state": record.state.value if record else None, "epoch": record.epoch if record else None}
    return [
        {
            "broker_group": name, "broker": broker, "role": group.role(broker), **shared,
            "address": group.brokers[broker].address if broker in group.brokers else None,
        }
        for broker in group.names
    ]  # fmt: skip


@command.command()
@click.argument("group")
@output_option
@instance_options(keys=("controller_key", "cluster_key"))
def show(instance: Instance, group: str, output: str) -> None:
    """Show the record of GROUP, the reason of its state, and what each broker reports: end of its log, gap in bytes, lag."""
    with (
        replicas.coordination_of(instance) as coordination,
        reached(coordination, group, instance.controller_key()) as found,
    ):
        shown = replicas.facts(found)
        if found.record is not None:
            shown["at"] = utc_ms(found.record.at_ms)
        shown["controller"] = _controller(coordination)
        rows = replicas.broker_rows(found)
    if is_for_scripts(output):
        show_one({**shown, "brokers": rows}, output)
        return
    show_one(shown, output)
    click.echo()
    show_rows(rows, BROKER_COLUMNS, output)


@command.command()
@click.argument("group")
@click.option("--limit", type=click.IntRange(1, 100), default=20, metavar="N", help="Show the newest N (default 20).")
@output_option
@instance_options()
def history(instance: Instance, group: str, limit: int, output: str) -> None:
    """Show the latest changes of GROUP, oldest first: time, epoch, state, master, reason. The newest 100 are kept."""
    with replicas.coordination_of(instance) as coordination:
        look_at(coordination, group)
        changes = coordination.history(group)[-limit:]
    rows = [{"at": utc_ms(each.record.at_ms), **replicas.change_of(each)} for each in changes]
    show_rows(rows, HISTORY_COLUMNS, output)


@command.command()
@click.argument("group")
@click.option("--to", default="", metavar="BROKER", help="Make BROKER master (default: the in-sync slave with most).")
@click.option("--force", is_flag=True, help="Make --to BROKER master even if messages are lost by it.")
@output_option
@instance_options(keys=("controller_key", "cluster_key"))
def switch(instance: Instance, group: str, to: str, force: bool, output: str) -> None:
    """Make another in-sync broker master of GROUP. Nothing is lost; sends wait for it and are sent again.

    Exit code 4 when no other broker is known to have everything. With --force the named broker becomes master alone, and
    warnings say whose messages are lost; nothing is asked.
    """
    if force and not to:
        raise click.UsageError("--force needs --to BROKER: nothing says which log is to be kept")
    key = instance.controller_key()
    with replicas.coordination_of(instance) as coordination:
        before, record = switch_master(coordination, group, key, to, force, _warn)
    old = {"master": before.master, "epoch": before.epoch} if before is not None else None
    note(instance, "switch", "broker", group, old, {"master": record.master, "epoch": record.epoch})
    shown = {"broker_group": group, "master": record.master, "epoch": record.epoch, "state": record.state.value}
    show_one({**shown, "in_sync": replicas.members(record.in_sync)}, output)


def _warn(sentence: str) -> None:
    click.echo(f"warning: {sentence}", err=True)


def _controller(coordination: Coordination) -> str | None:
    """The elected controller; only a coordination that is followed knows it."""
    seen = threading.Event()
    coordination.watch_groups(seen.set)
    seen.wait(CONTROLLER_S_MAX)
    return coordination.controller()

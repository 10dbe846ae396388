"""`penstock.toml` for `penstock up`: its own table, and those that it hands to its processes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from common.process_options import SETTINGS, SettingsFileError, read_file
from penstock.up.plan import ChildPlan, UpPlan
from penstock.up.ports import CONSOLE, KAFKA_BRIDGE

SET_BY_UP = frozenset(
    {
        "data", "listen", "socket-file", "ops", "cluster-key", "admin-key",
        "replica-key", "controller-key", "ops-key", "secrets-key", "config", "broker-group", "broker", "first",
        "look-up", "engine", "snapshot", "buffer", "journal", "kafka-bridge", "kafka-files", "name",
    }
)  # fmt: skip
"""Options of processes that `up` gives on their command lines, which win over the file."""
NEED_ROOT_KEYS = ("producer_proxy", "consumer_proxy", CONSOLE)
NOT_OF_UP = "use the command line, or its own table [up]"


def read_settings(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Make the table [up] the defaults of the command's options; the environment and the command line win over it."""
    if path is None:
        return None
    try:
        file = read_file(path)
        table = file.get("up", {})
        check_up(path, table, context.command)
        check_processes(path, file)
    except SettingsFileError as error:
        raise click.UsageError(str(error)) from error
    names = {option_name(each): each.name for each in context.command.params if isinstance(each, click.Option)}
    context.default_map = {**(context.default_map or {}), **{str(names[key]): value for key, value in table.items()}}
    return path.absolute()


def check_up(path: Path, table: dict[str, Any], command: click.Command) -> None:
    """Raises SettingsFileError for a key that is no option of `up`, or cannot be one of a file."""
    known = sorted(option_name(each) for each in command.params if isinstance(each, click.Option))
    for key in table:
        if key not in known or key == "settings":
            raise SettingsFileError(f"{path}: [up] {key}: no such option: use {', '.join(known)}")


def check_processes(path: Path, file: dict[str, dict[str, Any]]) -> None:
    """Raises SettingsFileError for an option that `up` gives its processes itself: the file's would have no effect."""
    for name, table in file.items():
        found = sorted(SET_BY_UP & table.keys()) if name != "up" else []
        if found:
            raise SettingsFileError(f"{path}: [{name}] {', '.join(found)}: `penstock up` sets it: {NOT_OF_UP}")


def option_name(option: click.Option) -> str:
    """The long name without dashes."""
    return max(option.opts, key=len).lstrip("-")


def with_kafka_files(plan: UpPlan, directories: Sequence[Path]) -> UpPlan:
    """The plan whose Kafka bridge reads the files of clusters below these directories only.

    Args:
        directories: empty: that which contains the data directory, and the one of a machine's services.
    """
    rooms = directories or (plan.data.parent, Path("/etc/penstock"))
    more = [part for each in rooms for part in ("--kafka-files", str(each.absolute()))]

    def changed(child: ChildPlan) -> ChildPlan:
        return replace(child, command=[*child.command, *more]) if child.name == KAFKA_BRIDGE else child

    return replace(plan, children=[*map(changed, plan.children)], later=plan.later and changed(plan.later))


def with_secrets_key(plan: UpPlan, path: Path | None) -> UpPlan:
    """The plan whose processes that make keys or check them have the root keys of this file; None: there is none."""
    if path is None:
        return plan
    more = ["--secrets-key", str(path)]

    def changed(child: ChildPlan) -> ChildPlan:
        return replace(child, command=[*child.command, *more]) if child.name in NEED_ROOT_KEYS else child

    return replace(plan, children=[*map(changed, plan.children)], secrets_key=path)


def with_settings(plan: UpPlan, path: Path | None) -> UpPlan:
    """The plan whose processes read the file, too."""
    if path is None:
        return plan
    more = [SETTINGS, str(path)]
    children = [replace(child, command=[*child.command, *more]) for child in plan.children]
    later = plan.later and replace(plan.later, command=[*plan.later.command, *more])
    return replace(plan, children=children, later=later)

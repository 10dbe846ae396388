"""`penstock rolling-restart`: the processes of a running `up`, one after the other."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from common.cluster.opening import open_coordination
from controller.operator_switch import switch_master
from penstock.commands import replicas
from penstock.terminal.exits import UNAVAILABLE, Command, CommandError
from penstock.terminal.instance import Instance, instance_options
from penstock.up.files import read_running

POLL_S = 0.05
IN_SYNC = "SYNC_REPLICATION"
BEFORE_ENGINES = ("producer_proxy", "consumer_proxy", "kafka_bridge", "console", "controller")


@click.command("rolling-restart", cls=Command)
@click.option(
    "--wait-s",
    type=click.FloatRange(1, 3600),
    default=60.0,
    metavar="S",
    help="Give up when a process does not serve again within S seconds (default 60).",
)
@instance_options()
def command(instance: Instance, wait_s: float) -> None:
    """Restart the processes of a running `up` one at a time, each when all others serve: after an upgrade.

    With replicas slaves are before masters, and a master hands over before it is restarted: sends go on. A lone engine
    is away for about a second: senders and consumers wait for it. `up` itself is not restarted. On several machines
    restart the units one after the other: docs/deployment.md.

    Exit code 5 when nothing runs, or a process does not serve again in time; those after it are not restarted then.
    """
    if instance.config_url is not None:
        raise click.UsageError("this is for `penstock up` on one machine: give --data DIR, and no --config or context")
    restart = RollingRestart(instance.data, wait_s)
    for name in restart.order():
        began = time.monotonic()
        restart.one(name)
        click.echo(f"{name}: serves again after {time.monotonic() - began:.1f} s")


class RollingRestart:
    """Restarts of the processes of the `up` on a data directory."""

    def __init__(self, data: Path, wait_s: float) -> None:
        self._data, self._wait_s = data, wait_s

    def order(self) -> Iterator[str]:
        """The names of processes in the order of their restarts. A master that comes next has handed over before."""
        facts = self._facts()
        yield from (name for name in BEFORE_ENGINES if name in facts["pids"])
        groups = facts.get("replicas", {})
        alone = facts.get("broker_groups", {"main": "engine"})
        for group, name in alone.items():
            if group in groups:
                yield from self._brokers(group, groups[group])
            else:
                yield name

    def one(self, name: str) -> None:
        """End a process, and wait until `up` has started it again, and all processes serve."""
        facts = self._facts()
        pid = facts["pids"][name]
        os.kill(pid, signal.SIGTERM)
        self._until(lambda: self._facts()["pids"][name] not in (0, pid), f"{name} serves")
        for group, brokers in facts.get("replicas", {}).items():
            if name in brokers:
                self._until_in_sync(group)

    def _brokers(self, group: str, names: list[str]) -> Iterator[str]:
        """Slaves, then the master, once another broker leads."""
        self._until_in_sync(group)
        master = self._record(group)["master"]
        yield from (name for name in names if name != master)
        facts = self._facts()
        with closing(open_coordination(facts["config"])) as coordination:
            led = switch_master(coordination, group, replicas.controller_key(facts)).record.master
        click.echo(f"{led}: is master of group {group}")
        yield master

    def _record(self, group: str) -> dict[str, Any]:
        return {"state": None, **replicas.states(self._facts())[group]}

    def _facts(self) -> dict[str, Any]:
        facts = read_running(self._data)
        if facts is None:
            raise CommandError(f"{self._data}: no running Penstock: see `penstock status`", UNAVAILABLE)
        return facts

    def _until_in_sync(self, group: str) -> None:
        self._until(lambda: self._record(group)["state"] == IN_SYNC, f"group {group} is in sync")

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + self._wait_s
        while not is_so():
            if time.monotonic() > end:
                raise CommandError(
                    f"not within {self._wait_s:g} s: {what}: see `penstock status` and the logs in {self._data}/logs",
                    UNAVAILABLE,
                )
            time.sleep(POLL_S)

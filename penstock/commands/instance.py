"""The Penstock that a command uses: from the data directory of a running `up`, or from options."""

import functools
import getpass
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from common.admin import audit, broker_groups
from common.admin.administrator import Administrator
from common.config import open_store
from common.config.applying import wait_applied
from common.config.errors import ConfigError, InvalidDefinition
from common.config.store import ConfigStore
from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.commands.exits import UNAVAILABLE, USAGE, CommandError
from penstock.up.directory import ADMIN_KEY, CLUSTER_KEY
from penstock.up.files import read_running

Address = tuple[str, int]
APPLIED_S_MAX = 3.0


@dataclass(frozen=True)
class Instance:
    """Addresses and configuration, looked up on demand: a change of the configuration needs no running process."""

    data: Path
    config_url: str | None
    addresses: dict[str, str]

    def config(self) -> str:
        """The configuration's URL. Raises CommandError if it is unknown."""
        if self.config_url:
            return self.config_url
        running = read_running(self.data)
        if running:
            return running["config"]
        if (self.data / "config").is_dir():
            return (self.data / "config").absolute().as_uri()
        raise CommandError(
            f"{self.data}: no Penstock: start one with `penstock up --data {self.data}`, or use --config URL",
            UNAVAILABLE,
        )

    def address(self, process: str) -> Address:
        """The address of producer_proxy, consumer_proxy or engine."""
        given = self.addresses.get(process)
        if given:
            host, _, port = given.rpartition(":")
            if not host or not port.isdigit():
                raise CommandError(f"{given!r} is not an address: use HOST:PORT", USAGE)
            return host.strip("[]"), int(port)
        found = (read_running(self.data) or {}).get(process)
        if not found:
            raise CommandError(
                f"{self.data}: no running Penstock: start one with `penstock up --data {self.data}`", UNAVAILABLE
            )
        return found["host"], found["port"]

    def engines(self, *, for_reads: bool = False) -> dict[str, Address]:
        """The engine of every broker group, by the group's name.

        Args:
            for_reads: take a slave that serves reads, where there is one.
        """
        choose = self.reading if for_reads else self.leading
        running = None if "engine" in self.addresses else read_running(self.data)
        if running and "replicas" in running:
            return {
                name: choose([_place(running, broker) for broker in brokers])
                for name, brokers in running["replicas"].items()
            }
        if running and "broker_groups" in running:
            return {name: _place(running, process) for name, process in running["broker_groups"].items()}
        if "engine" not in self.addresses and self.config_url:
            with open_config(self) as store:
                found = {group.name: group.addresses for group in broker_groups.list_groups(store)}
            if found:
                return {name: choose(addresses) for name, addresses in found.items()}
        return {"main": self.address("engine")}

    def leading(self, brokers: Sequence[Address]) -> Address:
        """The broker of a group that leads; the first one when none says so."""
        for address in brokers if len(brokers) > 1 else ():
            with suppress(OSError, LinkError), AdminClient(address, self.admin_key(), timeout_s=1) as link:
                if link.hello.leads:
                    return address
        return brokers[0]

    def reading(self, brokers: Sequence[Address]) -> Address:
        """A broker of a group that serves reads as a slave, so that the master has no work; without one, the master."""
        for address in brokers if len(brokers) > 1 else ():
            with suppress(OSError, LinkError, AdminError), AdminClient(address, self.admin_key(), timeout_s=1) as link:
                if not link.hello.leads and link.ask("status"):
                    return address
        return self.leading(brokers)

    def cluster_key(self) -> bytes:
        """The key of links that send and pull. Raises CommandError."""
        return self._secret("cluster_key", CLUSTER_KEY)

    def admin_key(self) -> bytes:
        """The key of links that administer engines. Raises CommandError."""
        return self._secret("admin_key", ADMIN_KEY)

    def _secret(self, name: str, file: str) -> bytes:
        path = Path((read_running(self.data) or {}).get(name, self.data / file))
        try:
            return path.read_bytes()
        except OSError as error:
            reason = f"{path}: the {name.replace('_', ' ')} cannot be read: {error.strerror}"
            raise CommandError(reason, UNAVAILABLE) from error


def _place(running: dict[str, Any], process: str) -> Address:
    return running[process]["host"], running[process]["port"]


@contextmanager
def open_config(instance: Instance) -> Iterator[ConfigStore]:
    store = open_store(instance.config())
    try:
        yield store
    finally:
        store.close()


@contextmanager
def administration(instance: Instance, *, changes: bool = False, risk: str = "") -> Iterator[Administrator]:
    """The verbs' context.

    With `changes` it ends when every expected process has applied them, or warns after APPLIED_S_MAX, with the `risk`.
    """
    with open_config(instance) as store:
        yield Administrator(store, f"cli:{_user()}@{socket.gethostname()}")
        if changes:
            late = wait_applied(store, store.version(), APPLIED_S_MAX)
            if late:
                click.echo(f"warning: stored, but not yet applied by {', '.join(late)}{risk}", err=True)


def warn_unreadable(error: InvalidDefinition) -> None:
    """Tell of a definition that a list leaves out."""
    click.echo(f"warning: left out, this version cannot read it: {error}", err=True)


def note(
    instance: Instance, action: str, kind: str, name: str, old: dict[str, Any] | None, new: dict[str, Any]
) -> None:
    """Record an operator's request to the engine in the audit journal, after it.

    Only warns when the journal cannot be reached.
    """
    try:
        with administration(instance) as admin:
            audit.record(admin.store, admin.clock, admin.who, action, kind, [name], old, new)
    except (CommandError, ConfigError) as error:
        click.echo(f"warning: done, but not recorded in the audit journal: {error}", err=True)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return f"uid{os.getuid()}"


def instance_options(*processes: str) -> Callable:
    """Add --data and --config, and an address option for each process; the command gets an `instance` argument."""

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def with_instance(data: Path, config: str | None, **rest: Any) -> Any:
            addresses = {process: rest.pop(_option(process)) for process in processes}
            return command(instance=Instance(data, config, {k: v for k, v in addresses.items() if v}), **rest)

        wrapped: Callable = with_instance
        for process in processes:
            wrapped = click.option(
                f"--{_option(process)}",
                metavar="HOST:PORT",
                help=f"Use this {process.replace('_', ' ')} (default: that of DIR).",
            )(wrapped)
        wrapped = click.option(
            "--config", metavar="URL", help="Use the configuration store at URL (default: that of DIR)."
        )(wrapped)
        return click.option(
            "--data",
            type=click.Path(path_type=Path),
            default=lambda: os.environ.get("PENSTOCK_DATA", "./.penstock"),
            metavar="DIR",
            help="Use the `up` of data directory DIR (default: $PENSTOCK_DATA, else ./.penstock).",
        )(wrapped)

    return decorate


def _option(process: str) -> str:
    return process.removesuffix("_proxy")

"""The Penstock that a command uses: from options, a context, or the data directory of a running `up`."""

import functools
import getpass
import os
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from common.admin import audit, broker_groups
from common.admin.administrator import Administrator
from common.config import open_store
from common.config.applying import wait_applied
from common.config.errors import ConfigError, InvalidDefinition
from common.config.placed_topics import stored_placed_topics
from common.config.root_keys import RootKeys, load_root_keys
from common.config.store import ConfigStore
from common.operator_proof import OperatorKeys
from common.placement import NONE_PLACED, PlacedTopics
from common.secret_file import secret_fault
from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from penstock.terminal import completing, discovery, name_hints
from penstock.terminal.contexts import ChosenPlace, ConnectionContext, choose_place
from penstock.terminal.exits import UNAVAILABLE, USAGE, CommandError
from penstock.up.directory import ADMIN_KEY, CLUSTER_KEY, CONTROLLER_KEY, SECRETS_KEY
from penstock.up.files import read_running

Address = tuple[str, int]
APPLIED_S_MAX = 3.0
UNKNOWN_PROCESSES = "stored, but no process is known to this configuration, so none was waited for"
EMPTY_BEFORE = (
    ": it had no entries before: if it was emptied, processes that run keep their last state: restore it with "
    "`penstock config apply`"
)
PROCESSES = ("producer_proxy", "consumer_proxy", "engine")
KEYS = ("cluster_key", "admin_key", "controller_key", "secrets_key")
WHO_VARIABLE = "PENSTOCK_WHO"
"""The author of changes, where a program runs commands for a person: the console names the one who is signed in."""


@dataclass(frozen=True)
class Instance:
    """Addresses and configuration, looked up on demand: a change of the configuration needs no running process.

    Attributes:
        addresses: by process, as options or the context give them.
        keys: files by the name of the key, as options or the context give them.
        tls_ca: authorities of the proxies' certificates; None: no TLS.
    """

    data: Path
    config_url: str | None
    addresses: dict[str, str]
    keys: dict[str, Path] = field(default_factory=dict)
    tls_ca: Path | None = None
    context: ConnectionContext | None = None

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
        running = self._running()
        if running and process in running:
            return running[process]["host"], running[process]["port"]
        if self.config_url:
            return self._reported(process)
        raise CommandError(
            f"{self.data}: no running Penstock: start one with `penstock up --data {self.data}`, or use --context NAME",
            UNAVAILABLE,
        )

    def _running(self) -> dict[str, Any] | None:
        """The facts of the data directory's `up`, where it serves the configuration that this command uses."""
        running = read_running(self.data)
        return running if running and self.config_url in (None, running["config"]) else None

    def _reported(self, process: str) -> Address:
        """A process that the configuration store knows to serve."""
        with open_config(self) as store:
            found = discovery.processes(store.applied(), process)
        address = discovery.answering(found)
        if address is None or (process == "engine" and len(found) > 1):
            state = "more than one" if found else "no"
            raise CommandError(
                f"{self.config_url}: {state} {process.replace('_', ' ')} reports to this configuration: "
                f"use --{_option(process)} HOST:PORT",
                UNAVAILABLE,
            )
        return address

    def engines(self, *, for_reads: bool = False) -> dict[str, Address]:
        """The engine of every broker group, by the group's name.

        Args:
            for_reads: take a slave that serves reads, where there is one.
        """
        choose = self.reading if for_reads else self.leading
        running = None if "engine" in self.addresses else self._running()
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

    def placed_topics(self, groups: Collection[str]) -> PlacedTopics:
        """The topics that are placed on some of these broker groups; with a single one it does not matter."""
        if len(groups) == 1:
            return NONE_PLACED
        with open_config(self) as store:
            return stored_placed_topics(store)

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

    def controller_key(self) -> bytes:
        """The key of links that change masters: the cluster key, where there is none. Raises CommandError."""
        if "controller_key" not in self.keys:
            path = Path((self._running() or {}).get("controller_key", self.data / CONTROLLER_KEY))
            if "cluster_key" in self.keys or not path.exists():
                return self.cluster_key()
        return self._secret("controller_key", CONTROLLER_KEY)

    def operator_keys(self) -> OperatorKeys:
        """The keys by which proxies are drained: those that there are, and at least one. Raises CommandError."""
        found: dict[str, bytes] = {}
        for name, read in (("admin", self.admin_key), ("cluster", self.cluster_key)):
            try:
                found[name] = read()
            except CommandError as error:
                if error.exit_code != UNAVAILABLE or (name == "cluster" and not found):
                    raise
        return OperatorKeys(**found)

    def root_keys(self) -> RootKeys:
        """The root keys that the option or the context gives, else those of the `up` whose configuration is used.

        Raises InvalidEntry: the file cannot be used.
        """
        if given := self.keys.get("secrets_key"):
            return load_root_keys(given)
        if running := self._running():
            path = running.get("secrets_key", "")
            return load_root_keys(Path(path)) if path else RootKeys()
        own, file = (self.data / "config").absolute().as_uri(), self.data / SECRETS_KEY
        return load_root_keys(file) if self.config_url in (None, own) and file.exists() else RootKeys()

    def _secret(self, name: str, file: str) -> bytes:
        option = f"--{name.replace('_', '-')}"
        if given := self.keys.get(name):
            if fault := secret_fault(given, 1, option):
                raise CommandError(fault, USAGE)
            return given.read_bytes()
        path = Path((self._running() or {}).get(name, self.data / file))
        try:
            return path.read_bytes()
        except OSError as error:
            reason = f"{path}: the {name.replace('_', ' ')} cannot be read: {error.strerror}: use {option} FILE"
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

    With `changes` it ends when every expected process has applied them, or warns after APPLIED_S_MAX, with the `risk`. It
    also warns where no process is expected though processes stay expected there: in a store that was emptied, they are
    only known again once each has seen it.
    """
    with open_config(instance) as store:
        was_empty = changes and store.keeps_members and store.identity() is None
        with name_hints.added(store):
            who = os.environ.get(WHO_VARIABLE) or f"cli:{_user()}@{socket.gethostname()}"
            yield Administrator(store, who, root_keys=instance.root_keys)
        if changes:
            late = wait_applied(store, store.version(), APPLIED_S_MAX)
            if late:
                click.echo(f"warning: stored, but not yet applied by {', '.join(late)}{risk}", err=True)
            elif store.keeps_members and not store.members():
                click.echo(f"warning: {UNKNOWN_PROCESSES}{EMPTY_BEFORE if was_empty else ''}", err=True)


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


def instance_options(*processes: str, keys: Sequence[str] | None = None) -> Callable:
    """Add --context, --data, --config, and per process an address option; the command gets an `instance` argument.

    Args:
        keys: the keys that the command may need (default: the admin key, where it asks an engine).
    """
    names = keys if keys is not None else ("admin_key",) if "engine" in processes else ()
    has_tls = any(process.endswith("_proxy") for process in processes)

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def with_instance(data: Path | None, config: str | None, context: str | None, **rest: Any) -> Any:
            place = choose_place(data, config, context, os.environ)
            addresses = {process: rest.pop(_option(process)) for process in processes}
            files = {name: rest.pop(name) for name in names}
            tls_ca = rest.pop("tls_ca") if has_tls else None
            return command(instance=_instance(place, addresses, files, tls_ca), **rest)

        wrapped: Callable = with_instance
        for option in [
            *[_key_option(name) for name in reversed(names)],
            *([_tls_option()] if has_tls else []),
            *[_address_option(process) for process in processes],
            *_place_options(),
        ]:
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _instance(
    place: ChosenPlace, addresses: dict[str, str | None], files: dict[str, Path | None], tls_ca: Path | None
) -> Instance:
    """What the options say, and for the rest the context."""
    context = place.context
    known = {process: getattr(context, _option(process), None) for process in PROCESSES}
    key_files = {name: Path(path) for name in KEYS if (path := getattr(context, name, None))}
    authority = tls_ca or (Path(context.tls_ca) if context and context.tls_ca else None)
    return Instance(
        place.data,
        place.config,
        {process: value for process, value in (known | _given(addresses)).items() if value},
        key_files | _given(files),
        authority,
        context,
    )


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _place_options() -> list[Callable]:
    data = "Use the `up` of data directory DIR (default: $PENSTOCK_DATA, the context, ./.penstock)."
    return [
        click.option("--config", metavar="URL",
            help="Use the configuration store at URL (default: $PENSTOCK_CONFIG, the context, that of DIR)."),
        click.option("--data", type=click.Path(path_type=Path), metavar="DIR", help=data),
        click.option("--context", metavar="NAME", shell_complete=completing.contexts,
            help="Use this context (default: $PENSTOCK_CONTEXT, the selected one)."),
    ]  # fmt: skip


def _address_option(process: str) -> Callable:
    text = f"Use this {process.replace('_', ' ')} (default: that of the context or of DIR)."
    return click.option(f"--{_option(process)}", metavar="HOST:PORT", help=text)


def _tls_option() -> Callable:
    text = "Speak TLS, and accept the proxy's certificate from the authorities in FILE, PEM (default: the context's)."
    return click.option("--tls-ca", type=click.Path(path_type=Path), metavar="FILE", help=text)


def _key_option(name: str) -> Callable:
    option = f"--{name.replace('_', '-')}"
    text = f"Read the {name.replace('_', ' ')} from FILE (default: that of the context or of DIR)."
    return click.option(option, type=click.Path(path_type=Path), metavar="FILE", help=text)


def _option(process: str) -> str:
    return process.removesuffix("_proxy")

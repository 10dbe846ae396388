"""`penstock context`: named deployments, so that commands need no addresses."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from common.secret_file import secret_fault
from penstock.terminal import completing, contexts
from penstock.terminal.contexts import ConnectionContext, ContextFile
from penstock.terminal.exits import CONFLICT, USAGE, CommandError, CommandGroup
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows

COLUMNS = ("selected", "name", "config", "app", "data")
FIELD_HELP = {
    "data": ("DIR", "Data directory of a `penstock up` on this machine."),
    "config": ("URL", "Configuration store: file:///DIR or zookeeper://HOSTS/PATH."),
    "producer": ("HOST:PORT", "Producer proxy (default: one that reports to the configuration)."),
    "consumer": ("HOST:PORT", "Consumer proxy (default: one that reports to the configuration)."),
    "engine": ("HOST:PORT", "The only engine (default: those of the configuration)."),
    "tls-ca": ("FILE", "Authorities of the proxies' certificates, PEM: calls to proxies use TLS."),
    "app": ("NAME", "Application to send and pull as (default: one that the command creates for this user)."),
    "key-id": ("KEY", "Key of the application."),
    "secret-file": ("FILE", "File with the key's secret, mode 0600. The context holds its path only."),
    "cluster-key": ("FILE", "File with the key of links between processes, mode 0600."),
    "admin-key": ("FILE", "File with the key of operators, mode 0600."),
    "controller-key": ("FILE", "File with the key of controllers, by which masters are changed, mode 0600."),
    "secrets-key": ("FILE", "File with the root keys of applications' secrets, mode 0600."),
}
SECRETS = ("secret-file", "cluster-key", "admin-key", "controller-key", "secrets-key")
FILES = ("data", "tls-ca", *SECRETS)

name_argument = click.argument("name", shell_complete=completing.contexts)


def field_options(command: Callable) -> Callable:
    for name, (metavar, text) in reversed(FIELD_HELP.items()):
        kind = click.Path(path_type=Path) if name in FILES else None
        command = click.option(f"--{name}", metavar=metavar, type=kind, help=text)(command)
    return command


@click.group(cls=CommandGroup)
def context() -> None:
    """Name deployments, and select the one that commands use.

    A command works on the first of: what --context names; what --data or --config name; what PENSTOCK_CONTEXT names;
    what PENSTOCK_DATA or PENSTOCK_CONFIG name; the selected context; ./.penstock. Its other options replace single
    values of the context.

    \b
    penstock context add test --data /srv/penstock
    penstock context add shop --config zookeeper://zk1,zk2,zk3/penstock --admin-key admin.key \\
        --app shop --key-id k-0123456789 --secret-file shop.secret
    penstock context select shop
    penstock topic list --context test
    """


@context.command()
@click.argument("name")
@click.option("--replace", "replaces", is_flag=True, help="Replace a context of this name.")
@field_options
@output_option
def add(name: str, replaces: bool, output: str, **given: str | Path | None) -> None:
    """Add context NAME; the first one is selected at once. Nothing is connected to."""
    contexts.check_name(name)
    fault = _fault(given)
    if fault:
        raise CommandError(fault, USAGE)
    file = contexts.load()
    if name in file.contexts and not replaces:
        raise CommandError(f"context {name}: exists already: use --replace", CONFLICT)
    made = ConnectionContext(name, **{field: _absolute(value) for field, value in given.items() if value is not None})
    changed = file.with_context(made)
    contexts.save(changed)
    show_one(row(changed, made), output)


def _fault(given: dict[str, Any]) -> str:
    """Why the values make no context, or nothing."""
    if not any(given.get(name) for name in ("data", "config", "producer", "consumer", "engine")):
        return "nothing to connect to: use --config URL, --data DIR, or addresses"
    if given["app"] and not (given["key_id"] and given["secret_file"]):
        return "--app needs --key-id KEY and --secret-file FILE"
    if not given["app"] and (given["key_id"] or given["secret_file"]):
        return "--key-id and --secret-file: no application is given: use --app NAME too"
    for name in ("producer", "consumer", "engine"):
        host, _, port = (given[name] or "host:1").rpartition(":")
        if not host or not port.isdigit():
            return f"--{name} {given[name]}: not an address: use HOST:PORT"
    if given["tls_ca"] and not given["tls_ca"].is_file():
        return f"--tls-ca {given['tls_ca']}: no such file"
    paths = [(f"--{name}", given[name.replace("-", "_")]) for name in SECRETS]
    return next((fault for option, path in paths if path and (fault := secret_fault(path, 1, option))), "")


def _absolute(value: str | Path) -> str:
    return str(value.absolute()) if isinstance(value, Path) else value


@context.command("list")
@output_option
def list_command(output: str) -> None:
    """List the contexts by name; * marks the selected one."""
    file = contexts.load()
    rows = [row(file, each) for _, each in sorted(file.contexts.items())]
    if not is_for_scripts(output):
        rows = [{**each, "selected": "*" if each["selected"] else ""} for each in rows]
    show_rows(rows, COLUMNS, output)


@context.command()
@click.argument("name", required=False, shell_complete=completing.contexts)
@output_option
def show(name: str | None, output: str) -> None:
    """Show context NAME (default: the selected one)."""
    file = contexts.load()
    if name is None and file.selected is None:
        raise CommandError("no context is selected: use `penstock context select NAME`", USAGE)
    show_one(row(file, file.get(name or str(file.selected))), output)


@context.command()
@click.argument("name", required=False, shell_complete=completing.contexts)
@click.option("--none", is_flag=True, help="Select no context: commands use ./.penstock again.")
@output_option
def select(name: str | None, none: bool, output: str) -> None:
    """Let commands use context NAME from now on, in every shell of this user."""
    if (name is None) is not none:
        raise click.UsageError("give the NAME of a context, or --none")
    file = contexts.load()
    chosen = None if name is None else file.get(name).name
    contexts.save(file.selecting(chosen))
    show_one({"selected": chosen}, output)


@context.command()
@name_argument
@output_option
def remove(name: str, output: str) -> None:
    """Remove context NAME. The files that it names stay."""
    file = contexts.load()
    file.get(name)
    contexts.save(file.without(name))
    show_one({"removed": name}, output)


def row(file: ContextFile, context: ConnectionContext) -> dict[str, Any]:
    values = {name: value for name, value in asdict(context).items() if value is not None}
    return {**values, "selected": file.selected == context.name}


command = context

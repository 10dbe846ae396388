"""`penstock config check` and `show`: the file `penstock.toml` with the options of `up` and of the processes."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from common.process_options import (
    CHECK,
    DEFAULT,
    DESCRIBE,
    SETTINGS,
    SETTINGS_VARIABLE,
    SettingsFileError,
    read_file,
    variable,
)
from penstock.terminal.exits import USAGE, Command, CommandError
from penstock.terminal.output import is_for_scripts, output_option, show_rows, show_value
from penstock.up.settings import option_name

PROCESSES = ("engine", "producer-proxy", "consumer-proxy", "controller", "kafka-bridge", "console")
COLUMNS = ("process", "option", "value", "from")
ASK_S_MAX = 60.0
ASK = "import importlib, sys; importlib.import_module(sys.argv[1] + '.options').parse(sys.argv[2:])"
NOT_IN_FILES = ("settings", "help")


@click.command("check", cls=Command)
@click.argument("file", type=click.Path(path_type=Path), envvar=SETTINGS_VARIABLE)
@output_option
def check(file: Path, output: str) -> None:
    """Check FILE (default $PENSTOCK_SETTINGS): tables, options and their values. Nothing is started.

    Exit code 0 when all is well, 2 with a line per fault.
    """
    try:
        found = read_file(file)
        with ThreadPoolExecutor(len(PROCESSES)) as pool:
            faults = [fault for some in pool.map(lambda name: faults_of(name, file), sorted(found)) for fault in some]
    except SettingsFileError as error:
        raise CommandError(str(error), USAGE) from error
    if is_for_scripts(output):
        show_value({"file": str(file), "faults": faults}, output)
    else:
        for fault in faults:
            click.echo(f"{file}: {fault}", err=True)
        if not faults:
            click.echo(f"{file}: no faults in {', '.join(f'[{name}]' for name in found) or 'an empty file'}")
    raise SystemExit(USAGE if faults else 0)


def faults_of(name: str, file: Path) -> list[str]:
    """The faults of one table, by the process's own parser."""
    if name != "up":
        return list(ask(name, SETTINGS, str(file), CHECK))
    found, table = [], read_file(file).get("up", {})
    options = up_options()
    for key, value in table.items():
        if key not in options:
            found.append(f"[up] {key}: no such option: use {', '.join(sorted(options))}")
            continue
        try:
            options[key].type_cast_value(click.Context(up_command()), value)
        except click.BadParameter as error:
            found.append(f"[up] {key}: {error.message}")
    return found


@click.command("show", cls=Command)
@click.argument("process", type=click.Choice(["up", *PROCESSES]), required=False)
@click.option("--settings", type=click.Path(path_type=Path), envvar=SETTINGS_VARIABLE, metavar="FILE",
              help=f"Read FILE (default ${SETTINGS_VARIABLE}).")  # fmt: skip
@click.option("--all", "shows_all", is_flag=True, help="Show the options that have their defaults, too.")
@output_option
def show(process: str | None, settings: Path | None, shows_all: bool, output: str) -> None:
    """Show the options of PROCESS, or of all, as the file and the environment give them, and from where each comes.

    An option on a process's command line wins over both. What the environment gives wins over the file.
    """
    try:
        file = read_file(settings) if settings is not None else {}
    except SettingsFileError as error:
        raise CommandError(str(error), USAGE) from error
    names = [process] if process else ["up", *PROCESSES]
    with ThreadPoolExecutor(len(PROCESSES)) as pool:
        options = dict(zip(names, pool.map(options_of, names), strict=True))
    rows = [row for name in names for row in rows_of(name, options[name], file.get(name, {}))]
    shown = [row for row in rows if shows_all or row["from"] != "default"]
    show_rows(shown, COLUMNS, output)
    if not is_for_scripts(output) and not shown:
        click.echo("all options have their defaults: --all shows them", err=True)


def rows_of(name: str, options: list[dict[str, Any]], table: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per option: its value in force below the command line."""
    rows = []
    for option in options:
        of_environment = os.environ.get(option.get("variable") or variable(name, option["name"]))
        value, source = option["default"], "default"
        if option["name"] in table:
            value, source = table[option["name"]], "file"
        if of_environment is not None:
            value, source = of_environment, "environment"
        rows.append({"process": name, "option": option["name"], "value": value, "from": source})
    return rows


def options_of(name: str) -> list[dict[str, Any]]:
    """The options of `up` or of a process, as it describes them itself."""
    if name != "up":
        return list(ask(name, DESCRIBE))
    return [
        {
            "name": key, "value": value_of(option), "default": default_of(option), "required": False,
            "variable": str(option.envvar or variable(name, key)), "text": DEFAULT.sub("", option.help or "").strip(),
        }
        for key, option in up_options().items()
    ]  # fmt: skip


def up_command() -> click.Command:
    from penstock.commands.up import command  # the supervisor: only for this

    return command


def up_options() -> dict[str, click.Option]:
    found = {option_name(each): each for each in up_command().params if isinstance(each, click.Option)}
    return {name: option for name, option in found.items() if name not in NOT_IN_FILES}


def value_of(option: click.Option) -> str:
    if option.is_bool_flag:
        return "true or false"
    return "|".join(map(str, option.type.choices)) if isinstance(option.type, click.Choice) else str(option.metavar)


def default_of(option: click.Option) -> str:
    found = DEFAULT.search(option.help or "")
    return found[1] if found else ""


def ask(name: str, *arguments: str) -> Any:
    """What the parser of a process prints, in a Python of its own: a process's modules may patch sockets and files."""
    line = [sys.executable, "-P", "-c", ASK, name.replace("-", "_"), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=ASK_S_MAX, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise CommandError(f"{name}: its options are not known: {last}")
    return json.loads(done.stdout)

"""Options of a process from its command line, its environment and a file, `penstock.toml`.

An option on the command line wins over the environment variable PENSTOCK_PROCESS_OPTION, and that over the file's table
of the process: `--retention-hours 24`, PENSTOCK_ENGINE_RETENTION_HOURS, `retention-hours` in `[engine]`. The file is
named by `--settings FILE` or PENSTOCK_SETTINGS. Everything that the file may say is read from the parser's own options.
"""

import argparse
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

SETTINGS, SETTINGS_VARIABLE = "--settings", "PENSTOCK_SETTINGS"
DESCRIBE, CHECK = "--describe-options", "--check-settings"
"""Hidden options: print the options as JSON; print the faults of the file's table as JSON, and end."""
NOT_IN_FILES = frozenset({"settings", "help", "ready-fd", "describe-options", "check-settings", "sign-in-link"})
DEFAULT = re.compile(r"\s*\(default:? (.*?)\)")
TABLES = ("up", "engine", "producer-proxy", "consumer-proxy", "controller", "kafka-bridge", "console")


class SettingsFileError(ValueError):
    """The file cannot be read, or says what no option takes. One sentence that names the file and the place."""


class ProcessParser(argparse.ArgumentParser):
    """The parser of one process. `prog` ends with the name of its table: `penstock engine`."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description)
        self.table = prog.rpartition(" ")[2]
        self.add_argument(
            SETTINGS, metavar="FILE",
            help=f"Read options that are given neither here nor in the environment from table [{self.table}] of FILE "
            f"(default ${SETTINGS_VARIABLE}).",
        )  # fmt: skip

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse does, with the environment and the file below the command line."""
        given = list(sys.argv[1:] if args is None else args)
        if DESCRIBE in given:
            print(json.dumps(self.described()))
            self.exit(0)
        path = given_value(given, SETTINGS) or os.environ.get(SETTINGS_VARIABLE)
        try:
            in_file = read_table(Path(path), self.table) if path else {}
        except SettingsFileError as error:
            self.error(str(error))
        if CHECK in given:
            print(json.dumps(list(self.faults(in_file))))
            self.exit(0)
        if path and (found := [f"{path}: {fault}" for fault in self.unknown(in_file)]):
            self.error("; ".join(found))
        return super().parse_args(self._joined(given, in_file), namespace)

    def options(self) -> dict[str, argparse.Action]:
        """The options that a file may give, by name without dashes."""
        names = {action.option_strings[-1][2:]: action for action in self._actions if action.option_strings}
        return {name: action for name, action in names.items() if name not in NOT_IN_FILES}

    def described(self) -> list[dict[str, Any]]:
        """Name, value, default and text of each option. The text of the help says defaults that depend on the machine."""
        return [described(name, action) for name, action in self.options().items()]

    def unknown(self, in_file: Mapping[str, Any]) -> Iterator[str]:
        """A fault per key that is no option."""
        for key in in_file.keys() - self.options().keys():
            near = get_close_matches(key, self.options(), 1)
            yield f"[{self.table}] {key}: no such option{f': did you mean {near[0]}?' if near else ''}"

    def faults(self, in_file: Mapping[str, Any]) -> Iterator[str]:
        """Everything that is wrong with a table, a sentence each."""
        yield from self.unknown(in_file)
        for name, action in self.options().items():
            if name not in in_file:
                continue
            value = in_file[name]
            is_flag = action.nargs == 0
            if is_flag is not isinstance(value, bool):
                yield f"[{self.table}] {name}: {value!r}: use {'true or false' if is_flag else 'a value'}"
                continue
            for text in [] if is_flag else texts(value, action):
                try:
                    self._check_value(action, self._get_value(action, text))
                except argparse.ArgumentError as error:
                    yield f"[{self.table}] {name}: {error.message}"

    def _joined(self, given: list[str], in_file: Mapping[str, Any]) -> list[str]:
        """The command line behind what the file and the environment say: of the same option the last one counts."""
        below: list[str] = []
        for name, action in self.options().items():
            if isinstance(action, argparse._AppendAction) and is_given(given, name):
                continue  # it would be added to, and not replaced
            value: Any = os.environ.get(variable(self.table, name))
            if value is not None and action.nargs == 0:
                value = value.lower() in ("1", "true", "yes", "on")
            if value is None:
                value = in_file.get(name)
            if value is True and action.nargs == 0:
                below.append(f"--{name}")
            elif value is not None and value is not False:
                below += [f"--{name}={text}" for text in texts(value, action)]
        return [*below, *given]


def described(name: str, action: argparse.Action) -> dict[str, Any]:
    """An option as JSON values."""
    text = (action.help or "").replace("%(default)s", str(action.default))
    stated = DEFAULT.search(text)
    default = stated[1] if stated else "" if action.default in (None, False, "", (), []) else str(action.default)
    kind = "true or false" if action.nargs == 0 else "|".join(action.choices) if action.choices else action.metavar
    return {
        "name": name, "value": str(kind), "default": default, "required": action.required,
        "text": DEFAULT.sub("", text).strip(),
    }  # fmt: skip


def texts(value: Any, action: argparse.Action) -> list[str]:
    """A file's value as the command line would have it: a list is several options, or one with commas."""
    if isinstance(value, list):
        parts = [str(each) for each in value]
        return parts if isinstance(action, argparse._AppendAction) else [",".join(parts)]
    return [str(value)]


def variable(table: str, name: str) -> str:
    """The environment variable of an option."""
    return f"PENSTOCK_{table}_{name}".upper().replace("-", "_")


def read_file(path: Path) -> dict[str, dict[str, Any]]:
    """All tables of a file. Raises SettingsFileError, also for a table of no process."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsFileError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path}: not TOML: {error}") from error
    for name, table in found.items():
        if name not in TABLES or not isinstance(table, dict):
            near = get_close_matches(name, TABLES, 1)
            raise SettingsFileError(
                f"{path}: [{name}]: no such table: {f'did you mean {near[0]}?' if near else 'use ' + ', '.join(TABLES)}"
            )
    return found


def read_table(path: Path, table: str) -> dict[str, Any]:
    """One table of a file; empty where it is missing. Raises SettingsFileError."""
    return read_file(path).get(table, {})


def is_given(arguments: Sequence[str], name: str) -> bool:
    return any(each == f"--{name}" or each.startswith(f"--{name}=") for each in arguments)


def given_value(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option on a command line that is not parsed yet; the last one counts."""
    found = None
    for at, each in enumerate(arguments):
        if each.startswith(f"{option}="):
            found = each.partition("=")[2]
        elif each == option and at + 1 < len(arguments):
            found = arguments[at + 1]
    return found

"""Contexts: named deployments in a file of the user, and the rule that chooses the one a command uses.

The file is `penstock/contexts.json` below $XDG_CONFIG_HOME (~/.config), readable by its owner only. It names files with
secrets and holds no secret itself.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from common.config import files
from penstock.terminal.exits import NOT_FOUND, USAGE, CommandError
from penstock.terminal.suggestions import did_you_mean

CONTEXT_VARIABLE, DATA_VARIABLE, CONFIG_VARIABLE = "PENSTOCK_CONTEXT", "PENSTOCK_DATA", "PENSTOCK_CONFIG"
HERE = "./.penstock"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class ConnectionContext:
    """One deployment, as commands find it. Paths are absolute; None: the context does not say.

    Attributes:
        producer, consumer, engine: HOST:PORT.
        secret_file: file with the secret of `app`, as `app create` prints it.
    """

    name: str
    data: str | None = None
    config: str | None = None
    producer: str | None = None
    consumer: str | None = None
    engine: str | None = None
    tls_ca: str | None = None
    app: str | None = None
    key_id: str | None = None
    secret_file: str | None = None
    cluster_key: str | None = None
    admin_key: str | None = None
    controller_key: str | None = None
    secrets_key: str | None = None

    def place(self) -> Path:
        """The data directory, or the folder of this user that takes its part for a deployment elsewhere."""
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        return Path(self.data) if self.data else state / "penstock" / self.name


FIELDS = tuple(each.name for each in fields(ConnectionContext) if each.name != "name")


@dataclass(frozen=True)
class ContextFile:
    """All contexts of a user, by name, and the selected one."""

    contexts: Mapping[str, ConnectionContext]
    selected: str | None = None

    def get(self, name: str) -> ConnectionContext:
        """Raises CommandError when there is none."""
        if name not in self.contexts:
            raise CommandError(
                f'context "{name}": not found: {did_you_mean(name, self.contexts) or "see `penstock context list`"}',
                NOT_FOUND,
            )
        return self.contexts[name]

    def with_context(self, context: ConnectionContext) -> "ContextFile":
        """The first context is selected, too."""
        return ContextFile({**self.contexts, context.name: context}, self.selected or context.name)

    def without(self, name: str) -> "ContextFile":
        left = {each: context for each, context in self.contexts.items() if each != name}
        return ContextFile(left, None if self.selected == name else self.selected)

    def selecting(self, name: str | None) -> "ContextFile":
        return replace(self, selected=name)


@dataclass(frozen=True)
class ChosenPlace:
    """Where a command works: a data directory, the configuration's URL where it is given, and the context in use."""

    data: Path
    config: str | None
    context: ConnectionContext | None


def choose_place(
    data: Path | None, config: str | None, context: str | None, environment: Mapping[str, str]
) -> ChosenPlace:
    """Options win over the environment, the environment wins over the selected context, and that over ./.penstock.

    A data directory or a configuration names another deployment than a context of a lower rank, so that context is not
    used at all. Of the same rank, they replace what the context says. Raises CommandError for an unknown context.
    """
    data_variable, config_variable = environment.get(DATA_VARIABLE) or None, environment.get(CONFIG_VARIABLE) or None
    if context is not None:
        found = load().get(context)
        return _place_of(found, data, config)
    if data is not None or config is not None:
        return ChosenPlace(data or Path(data_variable or HERE), config or config_variable, None)
    if environment.get(CONTEXT_VARIABLE):
        found = load().get(environment[CONTEXT_VARIABLE])
        return _place_of(found, Path(data_variable) if data_variable else None, config_variable)
    if data_variable or config_variable:
        return ChosenPlace(Path(data_variable or HERE), config_variable, None)
    file = load()
    if file.selected is not None and file.selected in file.contexts:
        return _place_of(file.contexts[file.selected], None, None)
    return ChosenPlace(Path(HERE), None, None)


def _place_of(context: ConnectionContext, data: Path | None, config: str | None) -> ChosenPlace:
    return ChosenPlace(data or context.place(), config or context.config, context)


def path() -> Path:
    """The file of this user."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "penstock" / "contexts.json"


def load() -> ContextFile:
    """The file's content; empty where there is none. Raises CommandError when it cannot be read or understood."""
    place = path()
    try:
        value = json.loads(place.read_bytes())
        found = {name: _parse(name, each) for name, each in value["contexts"].items()}
        return ContextFile(found, value.get("selected"))
    except FileNotFoundError:
        return ContextFile({})
    except OSError as error:
        raise CommandError(f"{place}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{place}: not a file of contexts: mend it, or remove it: {error}", USAGE) from error


def save(file: ContextFile) -> None:
    """Replace the file as a whole, mode 0600. Raises CommandError when it cannot be written."""
    place = path()
    shown = {name: _value(context) for name, context in sorted(file.contexts.items())}
    text = json.dumps({"selected": file.selected, "contexts": shown}, indent=1) + "\n"
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(place, text.encode())
    except OSError as error:
        raise CommandError(f"{place}: cannot be written: {error.strerror}") from error


def check_name(name: str) -> None:
    """Raises CommandError for a name that cannot be one of a context."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise CommandError(f'context "{name}": invalid name: use 1–100 characters of A–Z a–z 0–9 . _ -', USAGE)


def _parse(name: str, value: Mapping[str, str]) -> ConnectionContext:
    check_name(name)
    return ConnectionContext(name, **{field: str(value[field]) for field in FIELDS if value.get(field)})


def _value(context: ConnectionContext) -> dict[str, str]:
    return {name: value for name, value in asdict(context).items() if name != "name" and value is not None}

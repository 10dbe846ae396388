"""The application that a command sends and pulls as.

Secrets come from a file or the environment, never from the command line, which every user of the machine can read.
"""

import fcntl
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from common.admin import applications
from common.admin.administrator import Administrator
from common.admin.applications import NewKey
from common.config import files
from common.contract import Credential
from common.credential import WINDOW_MS, mint
from penstock.terminal.exits import USAGE, CommandError
from penstock.terminal.instance import Instance, administration

OPERATOR = "penstock-cli"
SECRET_VARIABLE = "PENSTOCK_SECRET"
REUSE_MS = WINDOW_MS // 3  # far below the window, so that clocks may differ


@dataclass
class Identity:
    """Mints credentials for one application and reuses each for REUSE_MS.

    Attributes:
        find_key: gives the key at the first use: a command that fails before leaves nothing in the configuration.
    """

    find_key: Callable[[], NewKey]
    _key: NewKey | None = None
    _minted: Credential | None = None

    def credential(self) -> Credential:
        now_ms = time.time_ns() // 1_000_000
        if self._minted is None or not 0 <= now_ms - self._minted.issued_at_ms < REUSE_MS:
            key = self._key = self._key or self.find_key()
            self._minted = Credential(*mint(key.app, key.key_id, key.secret, now_ms))
        return self._minted


def identity_options(command: Callable) -> Callable:
    for option in (
        click.option(
            "--secret-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help=f"Read the secret from FILE (default: ${SECRET_VARIABLE}).",
        ),
        click.option("--key-id", metavar="KEY", help="Use this key of the application."),
        click.option(
            "--app",
            metavar="NAME",
            help="Act as this application (default: the context's, else one of the data directory).",
        ),
    ):
        command = option(command)
    return command


def choose(instance: Instance, app: str | None, key_id: str | None, secret_file: Path | None) -> Identity:
    """The application that the options name, else that of the context, else the data directory's own operator."""
    context = instance.context
    if app is None and context is not None and context.app is not None:
        secret = secret_file or (Path(context.secret_file) if context.secret_file else None)
        app, key_id, secret_file = context.app, key_id or context.key_id, secret
    if app is None:
        if key_id or secret_file:
            raise CommandError("--key-id and --secret-file: no application is given: use --app NAME too", USAGE)
        return Identity(partial(_operator, instance))
    if key_id is None:
        raise CommandError("--app: no key is given: use --key-id KEY too", USAGE)
    key = NewKey(app, key_id, _secret(secret_file))
    return Identity(lambda: key)


def _secret(secret_file: Path | None) -> str:
    if secret_file is None:
        secret = os.environ.get(SECRET_VARIABLE, "")
        if not secret:
            raise CommandError(f"--app: no secret is given: use --secret-file FILE, or set {SECRET_VARIABLE}", USAGE)
        return secret
    try:
        return secret_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{secret_file}: the secret cannot be read: {getattr(error, 'strerror', None) or 'not a text'}", USAGE
        ) from error


def _operator(instance: Instance) -> NewKey:
    """The key in DIR/operator.key (0600), created on demand.

    It is checked against the configuration, which may have been reset. Each data directory of each machine has an
    application of its own, so that their keys do not replace one another.
    """
    path = instance.data / "operator.key"
    if instance.context is not None and instance.context.data is None:
        _prepare(instance.data)
    with administration(instance) as admin:
        key = _valid_key(admin, path)
        if key is not None and not applications.complete_operator(admin, key.app):
            return key
    with _alone(instance.data):
        return _make_key(instance, path)


def _prepare(data: Path) -> None:
    """Make the folder that takes the part of a data directory for a context without one."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{data}: cannot be made: {error.strerror}: use --app NAME") from error


def _make_key(instance: Instance, path: Path) -> NewKey:
    """The key of another command that has just made one, or a new one; kept in the file once the proxies know it."""
    with administration(instance, changes=True) as admin:
        held = _valid_key(admin, path)
        key = held or applications.ensure_operator(admin, operator_of(instance.data), None)
    if held is not None:
        return held
    try:
        _keep(path, key)
    except OSError as error:
        with administration(instance) as admin:
            applications.withdraw(admin, key)
        raise CommandError(
            f"{path}: cannot be written: {error.strerror}: use --app NAME, or --data DIR of a directory that can"
        ) from error
    return key


def _valid_key(admin: Administrator, path: Path) -> NewKey | None:
    held = _read_key(path)
    return held if held is not None and applications.is_valid(admin, held) else None


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Of the commands that use a data directory for the first time, one makes the key, and the others wait for it."""
    try:
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield  # without the directory there is no file for the key either
        return
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # its holder waits some seconds for the proxies at most
        yield
    finally:
        os.close(directory)


def operator_of(data: Path) -> str:
    """The application of a data directory on this machine."""
    place = str(data.absolute())
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100]
    return f"{OPERATOR}.{host}.{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _keep(path: Path, key: NewKey) -> None:
    files.replace(path, json.dumps({"app": key.app, "key_id": key.key_id, "secret": key.secret}).encode())


def _read_key(path: Path) -> NewKey | None:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        return NewKey(data["app"], data["key_id"], data["secret"])
    except (OSError, ValueError, KeyError, TypeError):
        return None

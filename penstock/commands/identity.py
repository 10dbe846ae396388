"""The application that a command sends and pulls as.

Secrets come from a file or the environment, never from the command line, which every user of the machine can read.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from common.admin import applications
from common.admin.applications import NewKey
from common.config import files
from common.contract import Credential
from common.credential import WINDOW_MS, mint
from penstock.commands.exits import USAGE, CommandError
from penstock.commands.instance import Instance, administration

OPERATOR = "penstock-cli"
SECRET_VARIABLE = "PENSTOCK_SECRET"
REUSE_MS = WINDOW_MS // 3  # far below the window, so that clocks may differ


@dataclass
class Identity:
    """Mints credentials for one application and reuses each for REUSE_MS."""

    key: NewKey
    _minted: Credential | None = None

    def credential(self) -> Credential:
        now_ms = time.time_ns() // 1_000_000
        if self._minted is None or not 0 <= now_ms - self._minted.issued_at_ms < REUSE_MS:
            self._minted = Credential(*mint(self.key.app, self.key.key_id, self.key.secret, now_ms))
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
            "--app", metavar="NAME", help=f"Act as this application (default: {OPERATOR} of the data directory)."
        ),
    ):
        command = option(command)
    return command


def choose(instance: Instance, app: str | None, key_id: str | None, secret_file: Path | None) -> Identity:
    """The application that the options name, or the data directory's own operator."""
    if app is None:
        if key_id or secret_file:
            raise CommandError("--key-id and --secret-file: no application is given: use --app NAME too", USAGE)
        return Identity(_operator(instance))
    if key_id is None:
        raise CommandError("--app: no key is given: use --key-id KEY too", USAGE)
    return Identity(NewKey(app, key_id, _secret(secret_file)))


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

    It is checked against the configuration, which may have been reset.
    """
    path = instance.data / "operator.key"
    held = _read_key(path)
    with administration(instance) as admin:
        key = applications.ensure_operator(admin, OPERATOR, held)
    if key != held:
        with administration(instance, changes=True):
            pass  # the proxies must know the new key before any command that reads the file uses it
        files.replace(path, json.dumps({"app": key.app, "key_id": key.key_id, "secret": key.secret}).encode())
    return key


def _read_key(path: Path) -> NewKey | None:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        return NewKey(data["app"], data["key_id"], data["secret"])
    except (OSError, ValueError, KeyError, TypeError):
        return None

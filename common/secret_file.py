"""Files that hold secrets: keys and passwords that only the service's user may read."""

import contextlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

OTHERS = stat.S_IRWXG & ~stat.S_IRGRP | stat.S_IRWXO
"""Rights that must not be set on such a file. The file's group may read it, as is usual for a service's group."""

KEY_BYTES = 32


def secret_faults(paths: Mapping[str, str | Path | None]) -> list[str]:
    """The faults of several files, by their options; None: the option is not given."""
    return [fault for option, path in paths.items() if path and (fault := secret_fault(Path(path), 1, option))]


def secret_fault(path: Path, bytes_min: int, option: str) -> str:
    """Why the file cannot be used as a secret, in one sentence that begins with the option; empty: it can."""
    try:
        state = path.stat()
    except OSError as error:
        return f"{option} {path}: {(error.strerror or str(error)).lower()}"
    if not stat.S_ISREG(state.st_mode):
        return f"{option} {path}: not a regular file"
    if state.st_mode & OTHERS:
        return f"{option} {path}: mode {stat.S_IMODE(state.st_mode):04o} lets other users read or change it: run chmod 600 {path}"
    if state.st_size < bytes_min:
        return f"{option} {path}: {state.st_size} bytes: use at least {bytes_min}"
    return ""


def ensure_key(path: Path) -> Path:
    """Return the path of a key file; created once, then kept."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(secrets.token_bytes(KEY_BYTES))
            out.flush()
            os.fsync(out.fileno())
    return path

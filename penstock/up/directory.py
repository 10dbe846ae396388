"""The data directory of one machine: `config/ engine/ logs/ cluster.key up.json up.lock`."""

import contextlib
import os
import secrets
from pathlib import Path

KEY_BYTES = 32
FOLDERS = ("config", "engine", "logs")


def prepare(data: Path) -> None:
    """Create missing folders, without access for other users; existing ones stay as they are."""
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o700)
    for name in FOLDERS:
        (data / name).mkdir(exist_ok=True)


def ensure_cluster_key(data: Path) -> Path:
    """Return the path of the key by which the processes authenticate to each other; created once, then kept."""
    path = data / "cluster.key"
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(secrets.token_bytes(KEY_BYTES))
            out.flush()
            os.fsync(out.fileno())
    return path

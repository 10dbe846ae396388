"""The lock that keeps a second `up` off a data directory, and the facts that its holder wrote into it."""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.up.errors import AlreadyRunning


class DirectoryLock:
    """`flock` on DIR/up.lock, held by this process's open file, so that it ends with the process in every case.

    Raises:
        AlreadyRunning: on entry, when another process holds it.
    """

    def __init__(self, data: Path) -> None:
        self.path = data / "up.lock"
        self._file: Any = None

    def __enter__(self) -> "DirectoryLock":
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "r+", encoding="utf-8")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self.noted().get("pid", "?")
            self._file.close()
            raise AlreadyRunning(
                f"{self.path.parent}: served by another `penstock up` (pid {holder}): stop it, or use another --data"
            ) from None
        return self

    def __exit__(self, kind: type | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()  # the file stays: after its removal two processes could hold the lock

    def noted(self) -> dict[str, Any]:
        """The last holder's facts: its pid and ports; {} when they cannot be read."""
        try:
            noted = json.loads(self.path.read_text(encoding="utf-8") or "{}")
        except (OSError, ValueError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def note(self, facts: dict[str, Any]) -> None:
        """Write facts for the next holder, and for the error of a second `up`."""
        self._file.seek(0)
        self._file.truncate()
        json.dump(facts, self._file)
        self._file.flush()


def is_held(data: Path) -> bool:
    """Whether an `up` serves this directory now. It tries a shared lock and releases it at once."""
    try:
        with open(data / "up.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

"""Tells after a start whether the unsynced end of the journal may be lost: the machine has started again meanwhile.

The file `run` holds the machine's boot id while a process uses the journal, and the Unix ms up to which no intent can be
lost; `closed` after an orderly end. A kill of the process loses nothing: what it wrote is in the page cache.
"""

import os
from collections.abc import Callable
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MARGIN_MS = 15_000
"""More than the time between two syncs and that of a slow sync together."""
CLOSED = "closed"


class LastRun:
    """Reads what the run before has left.

    Args:
        boot_id: of this machine; None: read it.
    """

    def __init__(self, directory: Path, now_ms: Callable[[], int], boot_id: str | None = None) -> None:
        self._path, self._now_ms = directory / "run", now_ms
        self._boot_id = BOOT_ID.read_text().strip() if boot_id is None else boot_id
        before, self._at_ms, self._safe_ms = _read(self._path)
        self._is_other = before not in ("", CLOSED, self._boot_id)
        self._has_begun = False

    def lost_span(self, last_ms: int | None) -> tuple[int, int] | None:
        """The times between which intents may be lost; None: none are.

        Args:
            last_ms: time of the last entry that is there; None: there is none. Counts if the run has noted no time itself.
        """
        if not self._is_other:
            return None
        return max(0, (self._safe_ms or last_ms or self._at_ms) - MARGIN_MS), self._now_ms()

    def begin(self) -> None:
        """Note this run, before its first intent. Raises OSError."""
        if not self._has_begun:
            _write(self._path, f"{self._boot_id} {self._now_ms()}")
            self._has_begun = True

    def note_safe(self, at_ms: int) -> None:
        """Note that no intent of this run older than MARGIN_MS at this time can be lost. Blocks. Raises OSError."""
        if self._has_begun:
            _write(self._path, f"{self._boot_id} {at_ms}")

    def end(self, is_complete: bool) -> None:
        """Note an orderly end; without all intents synced it is none."""
        if is_complete:
            _write(self._path, CLOSED)


def _read(path: Path) -> tuple[str, int, int]:
    """The boot id or CLOSED, the time of its writing in Unix ms, and the noted time, 0 if none is."""
    try:
        text, written_ms = path.read_text().split(), int(path.stat().st_mtime * 1000)
    except FileNotFoundError:
        return "", 0, 0
    noted = text[1] if len(text) > 1 else ""
    return text[0] if text else "", written_ms, int(noted) if noted.isdigit() else 0


def _write(path: Path, text: str) -> None:
    """Replace the text in place, durably: the file keeps its room on a full disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(file, text.ljust(64).encode(), 0)
        os.fsync(file)
    finally:
        os.close(file)

"""A file beside the disk buffer: Redis may have entries of this proxy, and which Redis that is.

A start reads it while Redis does not answer, and compares it with the Redis that answers.
"""

import logging
import os
from pathlib import Path

import gevent

from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))


class BacklogNote:
    """
    Args:
        path: None: there is no disk buffer, so no note.
    Attributes:
        is_set: Redis may have entries.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._written, self._met = path, "", ""
        self.is_set = path is not None and path.exists()
        self._found = _read(path) if path is not None and self.is_set else ""

    def set(self) -> None:
        """Durable on return, unless the disk refuses. Blocks the greenlet. Called before an entry goes to Redis."""
        if self._path is None or (self.is_set and self._written == self._met):
            return
        self._written = self._met
        try:
            gevent.get_hub().threadpool.apply(_write, (self._path, self._met))
        except OSError as error:
            limited.warning("buffer=redis: a restart while Redis is away will not know of its entries: %s", error)
        self.is_set = True

    def meets_another(self, redis_id: str | None) -> bool:
        """Take the id of the Redis that answers; None: it has none.

        Returns whether the note of before this start names another one than the first that answers: told, and True once.
        """
        self._met = redis_id or ""
        found, self._found = self._found, ""
        if not found or not redis_id or found == redis_id:
            return False
        limited.error(
            "buffer=redis: it had entries of this proxy before the restart, and has been emptied or is another Redis: messages "
            "that were answered BUFFERED are gone, or are in the other one"
        )
        return True

    def keep_if(self, has_entries: bool) -> None:
        """Remove the file once Redis has no entries. Not durable on return: a file that is found again is removed again."""
        if self.is_set and self._path is not None and not has_entries:
            self._path.unlink(missing_ok=True)
            self.is_set = False


NO_NOTE = BacklogNote(None)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, text.encode())
        os.fsync(file)
    finally:
        os.close(file)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

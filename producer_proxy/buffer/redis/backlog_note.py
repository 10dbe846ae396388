"""A file beside the disk buffer: Redis may have entries of this proxy. A start reads it while Redis does not answer."""

import logging
import os
from pathlib import Path

import gevent

from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))


class BacklogNote:
    """
    Args:
        path: None: there is no disk buffer, so no note, and none is needed.
    Attributes:
        is_set: Redis may have entries.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self.is_set = path, path is not None and path.exists()

    def set(self) -> None:
        """Durable on return, unless the disk refuses. Blocks the greenlet. Called before the first entry goes to Redis."""
        if self.is_set or self._path is None:
            return
        try:
            gevent.get_hub().threadpool.apply(_make, (self._path,))
        except OSError as error:
            limited.warning("buffer=redis: a restart while Redis is away will not know of its entries: %s", error)
        self.is_set = True

    def keep_if(self, has_entries: bool) -> None:
        """Remove the file once Redis has no entries. Not durable on return: a file that is found again is removed again."""
        if self.is_set and self._path is not None and not has_entries:
            self._path.unlink(missing_ok=True)
            self.is_set = False


NO_NOTE = BacklogNote(None)


def _make(path: Path) -> None:
    path.touch(0o600)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

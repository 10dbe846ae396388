"""Waits of a start for what the disk cannot read."""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from engine.env.base import Env

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Patience:
    """Pauses between the tries of one start.

    Args:
        wait_ms: the sum of all pauses.
    """

    def __init__(self, env: Env, wait_ms: int) -> None:
        self._env, self._left_ms, self._next_ms = env, wait_ms, 1000

    def wait(self) -> bool:
        """Block for 1, 2, 4 … seconds; False at once when nothing is left of the time."""
        if self._left_ms <= 0:
            return False
        pause_ms = min(self._next_ms, self._left_ms)
        logger.warning("the disk cannot read a part of the log: tried again in %d ms", pause_ms)
        self._env.pause(pause_ms)
        self._left_ms -= pause_ms
        self._next_ms *= 2
        return True


def patiently(patience: Patience, read: Callable[[], T]) -> T:
    """The result of `read`, called again after the waits that the disk needs. Raises OSError when the time is over."""
    while True:
        try:
            return read()
        except OSError:
            if not patience.wait():
                raise


class Readable(Protocol):
    """The part of a file that a start reads."""

    def read_at(self, size: int, at: int) -> bytes:
        """The bytes at `at`. Raises OSError."""


class PatientReads:
    """A file whose reads at a start are tried again."""

    def __init__(self, file: Readable, patience: Patience) -> None:
        self._file, self._patience = file, patience

    def read_at(self, size: int, at: int) -> bytes:
        """As File.read_at, after the waits that the disk needs. Raises OSError when the time is over."""
        return patiently(self._patience, lambda: self._file.read_at(size, at))

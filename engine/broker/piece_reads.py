"""Reads of pieces of this log for other brokers, in a thread: the loop does not wait for the disk.

Sends wait for the turns of the master and of its slaves.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from engine.env.base import Env
from engine.log.read.borrowed import WINDOW

WINDOWS_MAX = 8
"""Windows from the disk that stay in the page cache: a window is asked for in pieces."""

Answer = Callable[[bytes | OSError], None]


class PieceReads:
    """Reads pieces one after the other.

    Args:
        in_loop: runs a function in the loop's thread; callable from every thread.
    Attributes:
        bytes_read: pieces that were given, since the start of the process.
    """

    def __init__(self, env: Env, in_loop: Callable[[Callable[[], None]], None]) -> None:
        self._env, self._in_loop = env, in_loop
        self._background = env.background()
        self._fetched: OrderedDict[tuple[str, int], None] = OrderedDict()
        self.bytes_read = 0

    def read(self, path: str, address: int, size: int, answer: Answer) -> None:
        """Read bytes of a file, fewer at its end; `answer` is called in the loop with them, or with the disk's error."""
        self._background.submit(partial(self._read, path, address, size, answer))

    def _read(self, path: str, address: int, size: int, answer: Answer) -> None:
        found: bytes | OSError
        try:
            found = self._piece(path, address, size)
            self.bytes_read += len(found)
        except OSError as error:
            found = error
        self._in_loop(partial(answer, found))

    def _piece(self, path: str, address: int, size: int) -> bytes:
        file = self._env.open(path)
        try:
            if not file.in_memory(size, address):
                for number in range(address // WINDOW, (address + max(size, 1) - 1) // WINDOW + 1):
                    with suppress(OSError):  # a bad sector may lie beside the piece
                        file.fetch(WINDOW, number * WINDOW)
                    self._fetched[path, number] = None
                    self._fetched.move_to_end((path, number))
            data = file.read_at(size, address)
        finally:
            file.close()
        while len(self._fetched) > WINDOWS_MAX:
            self._forget(*self._fetched.popitem(last=False)[0])
        return data

    def _forget(self, path: str, number: int) -> None:
        try:
            file = self._env.open(path)
        except OSError:
            return  # deleted meanwhile
        file.forget(number * WINDOW, WINDOW)
        file.close()

"""Order by key: per key of a queue, one open message is in flight and the later ones wait.

Keys are compared by a 64-bit hash. Two keys with one hash count as one key, which costs parallelism but never order.
"""

from collections import deque

from common.wire import WireError
from common.wire.cursor import STRING, Cursor

KEY_FIELD = 3
NO_KEY = 0


def key_number(record: bytes) -> int:
    """Return the hash of the key in a stored record (FNV-1a, 64 bits); NO_KEY without a key or a message."""
    cursor = Cursor(record)
    cursor.at = 21 if record[4] & 1 else 5
    number = NO_KEY
    try:
        while True:
            kind, field = cursor.field()
            if kind == 0:
                return number
            if field == KEY_FIELD and kind == STRING:
                number = _fnv(cursor.slice(*cursor.string()))
            else:
                cursor.skip(kind, 1)
    except WireError:
        return NO_KEY


def _fnv(key: bytes) -> int:
    number = 0xCBF29CE484222325
    for byte in key:
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return number or 1


class KeyOrder:
    """Open messages of one cursor by key: the first of each key is its head, the others wait in order.

    Invariant: a waiting message has an open head before it; `waiting` counts the waiting messages.
    """

    __slots__ = ("_heads", "_numbers", "_waiters", "waiting")

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # of every open message with a key, by offset
        self._heads: dict[int, int] = {}
        self._waiters: dict[int, deque[int]] = {}
        self.waiting = 0

    def admit(self, offset: int, number: int) -> bool:
        """Add an open message after all others of its key; False when it has to wait."""
        if number == NO_KEY:
            return True
        self._numbers[offset] = number
        if self._heads.setdefault(number, offset) == offset:
            return True
        self._waiters.setdefault(number, deque()).append(offset)
        self.waiting += 1
        return False

    def done(self, offset: int) -> int:
        """Remove a message that is no longer open; returns the next head of its key, -1 without one."""
        number = self._numbers.pop(offset, NO_KEY)
        if number == NO_KEY:
            return -1
        waiters = self._waiters.get(number)
        if self._heads[number] != offset:
            # Its receipt is from before a restart, or from before the group had this order.
            assert waiters is not None
            waiters.remove(offset)
            self.waiting -= 1
            following = -1
        elif waiters:
            following = self._heads[number] = waiters.popleft()
            self.waiting -= 1
        else:
            del self._heads[number]
            following = -1
        if waiters is not None and not waiters:
            del self._waiters[number]
        return following

    def offsets(self) -> list[int]:
        """Return the offsets of all open messages with a key."""
        return list(self._numbers)

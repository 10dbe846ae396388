"""Order by key: per key of a queue, one open message is in flight and the later ones wait.

Keys are compared by a 64-bit hash. Two keys with one hash count as one key, which costs parallelism but never order.
"""

from collections import deque
from typing import Protocol

from engine.link.record import key_of

NO_KEY = 0
HELD = -1
"""Head of a key whose first message waits for another queue; see key_moves.py."""


class Moves(Protocol):
    """The view that a cursor has of moving keys."""

    def must_wait(self, offset: int, key_number: int, key: bytes) -> bool: ...

    def is_held(self, offset: int) -> bool: ...


def key_number(record: bytes) -> int:
    """Return the hash of the key in a stored record (FNV-1a, 64 bits); NO_KEY without a key or a message."""
    key = key_of(record)
    return NO_KEY if key is None else _fnv(key)


def _fnv(key: bytes) -> int:
    number = 0xCBF29CE484222325
    for byte in key:
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return number or 1


class KeyOrder:
    """Open messages of one cursor by key: the first of each key is its head, the others wait in order.

    Invariant: a waiting message has an open head before it, or the head is HELD; `waiting` counts the waiting messages.

    Attributes:
        moves: keys that move from other queues; None: none do.
    """

    __slots__ = ("_heads", "_numbers", "_waiters", "moves", "waiting")

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # of every open message with a key, by offset
        self._heads: dict[int, int] = {}
        self._waiters: dict[int, deque[int]] = {}
        self.waiting = 0
        self.moves: Moves | None = None

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

    def admit_moving(self, offset: int, record: bytes) -> bool:
        """As admit(), also False while the message waits for another queue, from which its key has moved."""
        key = key_of(record)
        if key is None:
            return True
        number = _fnv(key)
        must_wait = self.moves is not None and self.moves.must_wait(offset, number, key)
        if must_wait and number not in self._heads:
            self._heads[number] = HELD
        return self.admit(offset, number)

    def first_open(self, number: int) -> int:
        """Return the first open message of a key; -1 without one."""
        head = self._heads.get(number, -1)
        return self._waiters[number][0] if head == HELD and number in self._waiters else head

    def end_hold(self, offset: int) -> int:
        """The message waits no more for another queue; returns the next head of its key, -1 without one."""
        number = self._numbers.get(offset, NO_KEY)
        if number == NO_KEY or self._heads.get(number) != HELD:
            return -1
        return self._promote(number)

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
            return self._promote(number) if self._heads[number] == HELD else self._forget_empty(number)
        if waiters:
            return self._promote(number)
        del self._heads[number]
        return -1

    def _promote(self, number: int) -> int:
        """Make the first waiting message of the key its head, unless it waits for another queue."""
        waiters = self._waiters[number]
        following = -1
        if not waiters:
            del self._heads[number]
        elif self.moves is not None and self.moves.is_held(waiters[0]):
            self._heads[number] = HELD
        else:
            following = self._heads[number] = waiters.popleft()
            self.waiting -= 1
        self._forget_empty(number)
        return following

    def _forget_empty(self, number: int) -> int:
        if not self._waiters[number]:
            del self._waiters[number]
        return -1

    def offsets(self) -> list[int]:
        """Return the offsets of all open messages with a key."""
        return list(self._numbers)

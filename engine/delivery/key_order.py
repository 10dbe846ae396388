"""One key's messages one after another: which of a queue's open messages may be out, and which wait for an earlier one of their key.

Keys are told apart by 64 bits of hash. Two keys of one hash are taken for one: that costs them parallelism, never their order.
"""

from collections import deque

from common.wire import WireError
from common.wire.cursor import STRING, Cursor
from engine.errors import CorruptionError, OffsetOutOfRangeError
from engine.log.format import whole_records

KEY_FIELD = 3
NO_KEY = 0
READ_MAX = 1_000
READ_BYTES_MAX = 1 << 20


def key_number(record: bytes) -> int:
    """The hash of the key in a stored record (FNV-1a, 64 bits), NO_KEY when it has none or is no message."""
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
    """The open messages of one cursor by key: the first of each key is its head, the others wait in their order.

    Invariant: a message that waits has an open head before it; `waiting` counts them.
    """

    __slots__ = ("_behind", "_heads", "_numbers", "waiting")

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # of every open message with a key, by offset
        self._heads: dict[int, int] = {}
        self._behind: dict[int, deque[int]] = {}
        self.waiting = 0

    def take(self, offset: int, number: int) -> bool:
        """A further open message, behind all that its key has; False when it has to wait."""
        if number == NO_KEY:
            return True
        self._numbers[offset] = number
        if self._heads.setdefault(number, offset) == offset:
            return True
        self._behind.setdefault(number, deque()).append(offset)
        self.waiting += 1
        return False

    def done(self, offset: int) -> int:
        """The message is open no more; returns the one whose turn it is now, -1 without one."""
        number = self._numbers.pop(offset, NO_KEY)
        if number == NO_KEY:
            return -1
        behind = self._behind.get(number)
        if self._heads[number] != offset:
            # Its receipt is from before a restart, or from before the order was asked for.
            assert behind is not None
            behind.remove(offset)
            self.waiting -= 1
            following = -1
        elif behind:
            following = self._heads[number] = behind.popleft()
            self.waiting -= 1
        else:
            del self._heads[number]
            following = -1
        if behind is not None and not behind:
            del self._behind[number]
        return following

    def offsets(self) -> list[int]:
        """Of all open messages with a key."""
        return list(self._numbers)


def sort_open(cursor, store) -> bool:
    """Bring what was open before there was an order into it; False while its records are being fetched.

    What is out stays out: the order holds for what is handed out from now on.
    """
    for start, end, is_ready in [(range_.first, range_.end, range_.ready) for range_ in cursor.in_flight.ranges]:
        first = max(start, cursor.sorted_until)
        while first < end:
            try:
                pieces = store.read(cursor.topic_id, cursor.queue, first, min(end - first, READ_MAX), READ_BYTES_MAX)
            except OffsetOutOfRangeError as out:
                cursor.see(out.first_offset, out.end_offset)
                return sort_open(cursor, store)
            except CorruptionError as damage:
                # Nobody can be given it; handing out steps over it.
                cursor.sorted_until = first = max(first + 1, damage.next_offset or 0)
                continue
            if not pieces:
                return False
            for record in [record for piece in pieces for record in whole_records(piece.records)]:
                if not cursor.keys.take(first, key_number(record)) and is_ready:
                    cursor.in_flight.make_waiting(first)
                first += 1
            cursor.sorted_until = first
    cursor.is_sorted = True
    return True

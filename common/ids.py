"""Message ids that Penstock assigns: 16 bytes, unique without coordination, growing with time in each process.

    0 u48 Unix milliseconds ‖ 6 u8 0xff ‖ 7 u40 random, drawn once per process ‖ 12 u32 counter        (big-endian, so
    that ids sort by time)

The byte 0xff tells them from UUIDs in hex, which have their version there.

The counter continues across milliseconds, so a clock that steps back repeats no id before 2^32 more ids. Ids are not
secret: a reader of one can guess the next. Records and indexes hold the 16 bytes; people and clients see 32 lower-case
hex characters.
"""

import os
import re
import struct
from collections.abc import Callable

ID_SIZE = 16
ID_WINDOW_MS_MAX = 86_400_000
"""Longest id window of a topic (ids that clients set). A starting engine reads no further back."""

PROCESS_SIZE = 6
_MARK = b"\xff"
_TAIL = struct.Struct(">6sI")
_SHOWN = re.compile(r"[0-9a-f]{32}")
_SHOWN_MARK = slice(12, 14)


def process_bytes(random_bytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """The part of all ids that one process assigns."""
    return _MARK + random_bytes(PROCESS_SIZE - len(_MARK))


def assigned_at_ms(shown: str) -> int | None:
    """When an id was assigned, Unix milliseconds; None: it has the form of a client's own."""
    if shown[_SHOWN_MARK] != _MARK.hex() or not _SHOWN.fullmatch(shown):
        return None
    return int(shown[:12], 16)


class IdSource:
    """Makes ids. There is one per process, made after the last fork, so that no two processes share the random part.

    Parameters:
        now_ms: called for each id; Unix milliseconds.
        random_bytes: called once, as os.urandom.
    """

    def __init__(self, now_ms: Callable[[], int], random_bytes: Callable[[int], bytes] = os.urandom):
        self._now_ms = now_ms
        self._process = process_bytes(random_bytes)
        self._counter = int.from_bytes(random_bytes(4), "big")

    def next(self) -> bytes:
        """A new 16-byte id."""
        self._counter = (self._counter + 1) & 0xFFFFFFFF
        return self._now_ms().to_bytes(6, "big") + _TAIL.pack(self._process, self._counter)


def show_id(assigned: bytes) -> str:
    """The 32 lower-case hex characters that clients see."""
    return assigned.hex()


def parse_id(shown: str) -> bytes | None:
    """The 16 bytes of an assigned id, or None for a client-set id of another form."""
    return bytes.fromhex(shown) if _SHOWN.fullmatch(shown) else None

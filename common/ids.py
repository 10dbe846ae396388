"""Message ids that Penstock assigns: 16 bytes, unique without coordination, growing with time in each process.

    0 u48 Unix milliseconds ‖ 6 u48 drawn at random once a process ‖ 12 u32 counter        (big-endian, so that ids sort by time)

The counter runs on across milliseconds, so a clock that steps back repeats nothing before 2^32 more ids. Not secret: whoever sees one
can guess the next. In records and in indexes an id is its 16 bytes; people and clients see 32 lower-case hex characters.
"""

import os
import re
import struct

ID_SIZE = 16
ID_WINDOW_MS_MAX = 86_400_000
"""The longest time for which a topic may have ids remembered that clients set. An engine that starts looks back no further."""

_TAIL = struct.Struct(">6sI")
_SHOWN = re.compile(r"[0-9a-f]{32}")


class IdSource:
    """Makes ids. One a process and made after the last fork, so that no two processes share the random part.

    Parameters:
        now_ms: called for each id; Unix milliseconds.
        random_bytes: called once, as os.urandom.
    """

    def __init__(self, now_ms, random_bytes=os.urandom):
        self._now_ms = now_ms
        self._process = random_bytes(6)
        self._counter = int.from_bytes(random_bytes(4), "big")

    def next(self) -> bytes:
        """A new 16-byte id."""
        self._counter = (self._counter + 1) & 0xFFFFFFFF
        return self._now_ms().to_bytes(6, "big") + _TAIL.pack(self._process, self._counter)


def show_id(assigned: bytes) -> str:
    """The 32 lower-case hex characters that clients see."""
    return assigned.hex()


def parse_id(shown: str) -> bytes | None:
    """The 16 bytes of an assigned id, or None for one that a client chose itself in another form."""
    return bytes.fromhex(shown) if _SHOWN.fullmatch(shown) else None

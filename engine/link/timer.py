"""The bytes of a delayed message: a proxy packs them, the engine stores them as they are. Described in docs/format/log.md."""

import struct
from typing import NamedTuple

from google_crc32c import extend, value

HEAD = struct.Struct("<IqIIQqQIIIB3xI")
"""crc32c of what follows ‖ due ‖ topic id ‖ queue ‖ previous ‖ until ‖ gap ‖ times ‖ growth ‖ address of the id ‖ its size ‖ id window."""

_RECORD = struct.Struct("<IBI")
RECORD_HEAD = 5
"""Size and flags of the log's record around it."""

ANY_QUEUE = 0xFFFFFFFF
ASSIGNED = 1
_ASSIGNED_ID = slice(1, 17)


class Timer(NamedTuple):
    """One delayed message.

    Attributes:
        queue: of the topic; ANY_QUEUE for a message without a key, whose queue is chosen when it fires.
        previous: position of the record that this one takes over from, a loop's earlier round or what was carried; 0: none.
        until_ms: no round of a loop is due later than this; 0: no such end.
        gap_ms: from this round's due time to the next one's; 0: no loop.
        times: rounds to come behind this one.
        growth: what the gap is multiplied by after each round.
        id_at, id_size: where in `record` the id is.
        id_window_ms: the message is not stored if its topic has had the id within the window, which then is remembered for as long; 0: the
            id is not looked at.
        record: flags ‖ [16 bytes of assigned id] ‖ message, as it will lie in its queue.
    """

    due_ms: int
    topic_id: int
    queue: int
    previous: int
    until_ms: int
    gap_ms: int
    times: int
    growth: int
    id_at: int
    id_size: int
    id_window_ms: int
    record: bytes

    @property
    def shown_id(self) -> bytes:
        """The id as clients see and send it."""
        if self.record[0] & ASSIGNED:
            return self.record[_ASSIGNED_ID].hex().encode()
        return self.record[self.id_at : self.id_at + self.id_size]

    def pack(self) -> bytes:
        """The whole record of a TIMER batch."""
        *fields, record = self
        head = HEAD.pack(0, *fields)[4:]
        size = RECORD_HEAD - 4 + HEAD.size + len(record)
        return _RECORD.pack(size, 0, extend(value(head), record)) + head + record


def parse(data: bytes, at: int = 0) -> Timer | None:
    """The timer whose record begins at `at`, or None when it is cut off or does not verify."""
    if len(data) - at < RECORD_HEAD + HEAD.size:
        return None
    end = at + 4 + int.from_bytes(data[at : at + 4], "little")
    start = at + RECORD_HEAD
    if end > len(data) or end < start + HEAD.size + 2:
        return None
    crc, *fields = HEAD.unpack_from(data, start)
    if value(data[start + 4 : end]) != crc:
        return None
    timer = Timer._make([*fields, data[start + HEAD.size : end]])
    if timer.record[0] > ASSIGNED or timer.id_at + timer.id_size > len(timer.record):
        return None
    return timer

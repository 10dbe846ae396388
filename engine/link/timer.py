"""TIMER_ADD, TIMER_ADD_AGAIN, TIMER_CANCEL, TIMER_LIST, and the record of a delayed message.

A proxy packs the record and the engine stores it as it is (docs/format/log.md).
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from google_crc32c import extend, value

from engine.link.append import APPEND_HEAD, APPEND_RESULT, RESEND_HEAD
from engine.link.codes import DUPLICATE

HEAD = struct.Struct("<IqIIQqQIIIB3xI")
"""CRC-32C of the rest ‖ due ‖ topic id ‖ queue ‖ previous ‖ until ‖ gap ‖ times ‖ growth ‖ id_at ‖ id size ‖
id window.
"""

_RECORD = struct.Struct("<IBI")
RECORD_HEAD = 5
"""Size and flags of the log's record around it."""

ANY_QUEUE = 0xFFFFFFFF
DUE_MS_MAX = 253_402_300_799_999
"""The last millisecond of year 9999."""

ASSIGNED = 1
_ASSIGNED_ID = slice(1, 17)


class Timer(NamedTuple):
    """One delayed message.

    Attributes:
        due_ms: Unix ms. In TIMER_ADD a negative number is minus a delay, which the engine counts from its receipt by
            its own clock; it stores the moment.
        queue: of the topic; ANY_QUEUE for a message without a key, whose queue is chosen when it fires.
        previous: position of the record that this one replaces: an earlier round of a loop, or the same one before
            relocation; 0: none.
        until_ms: latest due time of a loop's rounds; 0: unlimited.
        gap_ms: from this round's due time to the next one's; 0: no loop.
        times: rounds that follow this one.
        growth: factor by which the gap grows after each round.
        id_at, id_size: where in `record` the id is.
        id_window_ms: the message is not stored if its topic has had the id within the window, and the id is then
            remembered for as long; 0: the id is not checked.
        record: flags ‖ [16 bytes of assigned id] ‖ message, as its queue will store it.
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
    def identity(self) -> bytes:
        """Equal for all records of one delayed message: moved ones, later rounds, one whose delay became a moment."""
        return self.topic_id.to_bytes(4, "little") + self.record

    @property
    def shown_id(self) -> bytes:
        """The id in the form that clients see and send."""
        if self.record[0] & ASSIGNED:
            return self.record[_ASSIGNED_ID].hex().encode()
        return self.record[self.id_at : self.id_at + self.id_size]

    def pack(self) -> bytes:
        """Encode the whole record of a TIMER batch."""
        *fields, record = self
        head = HEAD.pack(0, *fields)[4:]
        size = RECORD_HEAD - 4 + HEAD.size + len(record)
        return _RECORD.pack(size, 0, extend(value(head), record)) + head + record


def parse(data: bytes, at: int = 0) -> Timer | None:
    """Decode the record that begins at `at`; None when it is cut off or its checksum is wrong."""
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


def parse_all(data: bytes, count: int) -> Iterator[tuple[bytes, Timer | None]]:
    """Yield each of `count` records as it is, and decoded; None and a shorter one follow the first that is cut off."""
    at = 0
    for _ in range(count):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        yield data[at:end], parse(data, at)
        at = end


def encode_add(durability: int, timers: list[Timer]) -> bytes:
    """Encode a TIMER_ADD request."""
    return APPEND_HEAD.pack(durability, len(timers)) + b"".join(timer.pack() for timer in timers)


def encode_add_again(position: int, add: bytes) -> bytes:
    """Encode a TIMER_ADD_AGAIN of a TIMER_ADD's payload. Nothing of it is stored below the position."""
    return RESEND_HEAD.pack(position) + add


def decode_added(payload: bytes) -> list[tuple[int, int | None, int | None]]:
    """(code, queue, offset) per timer of a TIMER_ADD answer.

    Queue and offset are set for a DUPLICATE whose first copy is in its queue.
    """
    return [
        (code, None, None) if code != DUPLICATE or queue == ANY_QUEUE else (code, queue, offset)
        for code, queue, offset in APPEND_RESULT.iter_unpack(payload)
    ]


def encode_cancel(durability: int, topic: str, shown_id: str) -> bytes:
    """Encode a TIMER_CANCEL request."""
    return json.dumps({"durability": durability, "topic": topic, "id": shown_id}).encode()


def encode_list(topic: str | None, start: int, limit: int) -> bytes:
    """Encode a TIMER_LIST request. `topic` None: of all topics."""
    return json.dumps({"topic": topic, "start": start, "limit": limit}).encode()


def decode_listed(payload: bytes) -> tuple[list[dict[str, Any]], int]:
    """(pending messages, `start` of the next page or -1 at the end) of a TIMER_LIST answer."""
    answer = json.loads(payload)
    return answer["timers"], answer["next"]

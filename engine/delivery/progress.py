"""Stored progress of one group in one queue, from which a restart or a new master continues.

Key: b"g" ‖ group ‖ 0x00 ‖ u32 topic id ‖ u32 queue, big-endian so that one topic's queues lie together.
Value: varints: version 1 ‖ floor ‖ first open offset ‖ number of ranges ‖ ranges ‖ tail. A range is gap before it ‖
messages ‖ attempts so far. The gaps are acknowledged, and so is the tail, which ends where dispatch continues.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

VERSION = 1
RECEIPT_KEY = b"\0receipt-key"
_QUEUE = struct.Struct(">II")


class Progress(NamedTuple):
    """State of a cursor as it is stored.

    Attributes:
        floor: leases below it are older than a reset of the group, so their receipts settle nothing.
        ranges: (first, end, attempts so far), ordered, below `next_offset`.
    """

    floor: int
    next_offset: int
    ranges: list[tuple[int, int, int]]


def key(group: str, topic_id: int, queue: int) -> bytes:
    """Return the key of one queue of one group."""
    return group_prefix(group) + _QUEUE.pack(topic_id, queue)


def group_prefix(group: str) -> bytes:
    """Return the common prefix of all keys of one group."""
    return b"g" + group.encode() + b"\0"


def split_key(raw: bytes) -> tuple[str, int, int] | None:
    """Return (group, topic id, queue); None for a key of another kind."""
    if len(raw) < 2 + _QUEUE.size or raw[:1] != b"g" or raw[-_QUEUE.size - 1]:
        return None
    return raw[1 : -_QUEUE.size - 1].decode(), *_QUEUE.unpack(raw[-_QUEUE.size :])


def encode(progress: Progress) -> bytes:
    """Return the value's bytes. Adjacent ranges of one attempt become one: leases are not stored."""
    out = bytearray()
    merged = list(_merged(progress.ranges))
    at = merged[0][0] if merged else progress.next_offset
    for number in (VERSION, progress.floor, at, len(merged)):
        _put(out, number)
    for first, end, attempt in merged:
        _put(out, first - at)
        _put(out, end - first)
        _put(out, attempt)
        at = end
    _put(out, progress.next_offset - at)
    return bytes(out)


def decode(value: bytes) -> Progress:
    """Decode a value. Raises ValueError for bytes that encode() did not make."""
    numbers = list(_numbers(value))
    if len(numbers) < 5 or numbers[0] != VERSION or len(numbers) != 5 + 3 * numbers[3]:
        raise ValueError(f"progress value of {len(value)} bytes: not of version {VERSION}")
    _, floor, at, count, *rest = numbers
    ranges = []
    for index in range(count):
        gap, messages, attempt = rest[3 * index : 3 * index + 3]
        ranges.append((at + gap, at + gap + messages, attempt))
        at += gap + messages
    return Progress(floor, at + rest[-1], ranges)


def _merged(ranges: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    before = None
    for each in ranges:
        if before and before[1] == each[0] and before[2] == each[2]:
            before = (before[0], each[1], each[2])
            continue
        if before:
            yield before
        before = each
    if before:
        yield before


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(value: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in value:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            continue
        yield number
        number = shift = 0
    if shift:
        raise ValueError(f"progress value of {len(value)} bytes: ends within a number")

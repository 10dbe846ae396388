"""Stored progress of one group in one queue, from which a restart or a new master continues.

Key: b"g" ‖ group ‖ 0x00 ‖ u32 topic id ‖ u32 queue, big-endian so that one topic's queues lie together.
Value: varints: version ‖ floor ‖ from version 2 on: lease time ‖ lead ‖ first open offset ‖ number of ranges ‖ ranges
‖ tail.
A range is gap before it ‖ messages ‖ attempts so far, and in version 2 ‖ when its lease ends, in steps of 256 ms after
the lease time, 0 for a ready range; after another number ‖ from its newest lease to lease time + lead ‖ from its oldest
to its newest lease. In version 3 both refer to the leased range before, and the end says whether the range is withheld:
docs/design/0021-leases-that-survive.md. The gaps are acknowledged, and so is the tail, which ends where dispatch
continues.

A value without a running lease has version 1, one without a withheld range version 2: they cost only records that have
some.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from engine.log.port import ProgressLog
from engine.log.types import Topic

VERSION = 1
HELD_VERSION = 2
WITHHELD_VERSION = 3
DUE_STEP_BITS = 8
YOUNG_STEPS = 8
"""Of a young lease, one that perhaps no client has seen: the steps that it runs at most after a kill, about 2 s."""
NONE_YOUNG = 1 << 62
COUNTER_BITS = 20
"""Of a lease number: a counter; the rest is lease time in milliseconds."""
RECEIPT_KEY = b"\0receipt-key"
FLOOR_PREFIX = b"\0floor"
FORGOTTEN_KEY = b"\0forgotten"
NUMBER_MAX = (1 << 63) - 1
_QUEUE = struct.Struct(">II")


class StoredRange(NamedTuple):
    """Messages first..end in flight, as they are stored.

    Attributes:
        attempt: deliveries so far.
        due: when the lease ends, in steps of 256 ms after the lease time of the record, rounded up; 0: it is ready.
        oldest_ms, newest_ms: lease times at which its leases began; 0 without `due`.
        is_withheld: given back by RETRY until then.
    """

    first: int
    end: int
    attempt: int
    due: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    is_withheld: bool = False


class Progress(NamedTuple):
    """State of a cursor as it is stored.

    Attributes:
        floor: leases below it are older than a reset of the group, so their receipts settle nothing.
        ranges: in flight, ordered, below `next_offset`.
        time_ms: lease time of the record; stored only with a running lease.
        lead_ms: time by which lease numbers may be ahead of it.
    """

    floor: int
    next_offset: int
    ranges: list[StoredRange]
    time_ms: int = 0
    lead_ms: int = 0

    @property
    def top_lease(self) -> int:
        """The highest lease number that it may name."""
        newest_ms = max((each.newest_ms for each in self.ranges if each.due), default=None)
        return self.floor if newest_ms is None else max(self.floor, (newest_ms + 1 << COUNTER_BITS) - 1)


def key(group: str, topic_id: int, queue: int) -> bytes:
    """Return the key of one queue of one group."""
    return group_prefix(group) + _QUEUE.pack(topic_id, queue)


def group_prefix(group: str) -> bytes:
    """Return the common prefix of all keys of one group."""
    return b"g" + group.encode() + b"\0"


def is_kept(store: ProgressLog, group: str) -> bool:
    """Whether the log has progress of the group in any queue."""
    return any(split_key(raw) for raw, _ in store.progress(group_prefix(group)))


def split_key(raw: bytes) -> tuple[str, int, int] | None:
    """Return (group, topic id, queue); None for a key of another kind."""
    if len(raw) < 2 + _QUEUE.size or raw[:1] != b"g" or raw[-_QUEUE.size - 1]:
        return None
    return raw[1 : -_QUEUE.size - 1].decode(), *_QUEUE.unpack(raw[-_QUEUE.size :])


def floor_entry(topic_id: int, floor: int) -> tuple[bytes, bytes]:
    """Return the entry of a topic that was created again: receipts of leases below the floor are for the old topic."""
    return FLOOR_PREFIX + topic_id.to_bytes(4, "big"), floor.to_bytes(8, "big")


def stored_floor(store: ProgressLog, topic_id: int) -> int:
    """Return the floor of a topic that was created again; 0 for every other one."""
    return next((int.from_bytes(value, "big") for _, value in store.progress(floor_entry(topic_id, 0)[0])), 0)


def forgotten_entry(floor: int) -> tuple[bytes, bytes]:
    """Return the entry of all topics that were forgotten: what comes back under their names has later leases."""
    return FORGOTTEN_KEY, floor.to_bytes(8, "big")


def floor_of(store: ProgressLog, topic: Topic) -> int:
    """Return the floor of a group that begins with the topic now."""
    forgotten = next((int.from_bytes(value, "big") for _, value in store.progress(FORGOTTEN_KEY)), 0)
    return max(forgotten, stored_floor(store, topic.id) if topic.made_ms else 0)


def encode(progress: Progress) -> bytes:
    """Return the value's bytes. Adjacent ranges of one attempt become one when their leases began and end together."""
    out = bytearray()
    merged = list(_merged(progress.ranges))
    is_held = any(each.due for each in merged)
    is_withheld = any(each.is_withheld for each in merged)
    at = merged[0].first if merged else progress.next_offset
    newest_ms, due = progress.time_ms + progress.lead_ms, 0
    leased = (progress.time_ms, progress.lead_ms) if is_held else ()
    version = WITHHELD_VERSION if is_withheld else HELD_VERSION if is_held else VERSION
    head = (version, progress.floor, *leased)
    for number in (*head, at, len(merged)):
        _put(out, number)
    for each in merged:
        _put(out, each.first - at)
        _put(out, each.end - each.first)
        _put(out, each.attempt)
        if is_withheld:
            _put(out, 1 + 2 * _zigzag(each.due - due) + each.is_withheld if each.due else 0)
        elif is_held:
            _put(out, each.due)
        if each.due:
            _put(out, _zigzag(each.newest_ms - newest_ms) if is_withheld else newest_ms - each.newest_ms)
            _put(out, each.newest_ms - each.oldest_ms)
            if is_withheld:
                due, newest_ms = each.due, each.newest_ms
        at = each.end
    _put(out, progress.next_offset - at)
    return bytes(out)


def decode(value: bytes) -> Progress:
    """Decode a value. Raises ValueError for bytes that encode() did not make."""
    numbers = _numbers(value)
    try:
        version, floor = next(numbers), next(numbers)
        if version not in (VERSION, HELD_VERSION, WITHHELD_VERSION):
            raise ValueError(f"progress value of {len(value)} bytes: version {version}: this engine knows 1 to 3")
        is_held = version != VERSION
        time_ms, lead_ms = (next(numbers), next(numbers)) if is_held else (0, 0)
        at, count = next(numbers), next(numbers)
        if count > len(value):
            raise ValueError(f"progress value of {len(value)} bytes: {count} ranges do not fit")
        if version == WITHHELD_VERSION:
            ranges = _decode_withheld(numbers, at, count, time_ms + lead_ms)
            at = ranges[-1].end if ranges else at
        else:
            ranges = []
            for _ in range(count):
                first = at + next(numbers)
                at = first + next(numbers)
                attempt, due = next(numbers), next(numbers) if is_held else 0
                newest_ms = time_ms + lead_ms - next(numbers) if due else 0
                oldest_ms = newest_ms - next(numbers) if due else 0
                ranges.append(StoredRange(first, at, attempt, due, oldest_ms, newest_ms))
        tail = next(numbers)
    except StopIteration:
        raise ValueError(f"progress value of {len(value)} bytes: ends before its last range") from None
    if next(numbers, None) is not None:
        raise ValueError(f"progress value of {len(value)} bytes: goes on after its tail")
    return Progress(floor, at + tail, ranges, time_ms, lead_ms)


def _decode_withheld(numbers: Iterator[int], at: int, count: int, newest_ms: int) -> list[StoredRange]:
    """The ranges of version 3, of which the first one begins at or after `at`."""
    ranges, due = [], 0
    for _ in range(count):
        first = at + next(numbers)
        at = first + next(numbers)
        attempt, end = next(numbers), next(numbers)
        if not end:
            ranges.append(StoredRange(first, at, attempt))
            continue
        due += _unzigzag(end - 1 >> 1)
        newest_ms += _unzigzag(next(numbers))
        ranges.append(StoredRange(first, at, attempt, due, newest_ms - next(numbers), newest_ms, not end & 1))
    return ranges


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _unzigzag(number: int) -> int:
    return -(number + 1 >> 1) if number & 1 else number >> 1


def _merged(ranges: list[StoredRange]) -> Iterator[StoredRange]:
    before: StoredRange | None = None
    for each in ranges:
        if before and (before.end, *_mergeable(before)) == (each.first, *_mergeable(each)):
            before = before._replace(
                end=each.end,
                oldest_ms=min(before.oldest_ms, each.oldest_ms),
                newest_ms=max(before.newest_ms, each.newest_ms),
            )
            continue
        if before:
            yield before
        before = each
    if before:
        yield before


def _mergeable(each: StoredRange) -> tuple[int, int, int, bool]:
    """What neighbours have in common that become one; so a lease is known to a step of 256 ms."""
    return each.attempt, each.due, each.newest_ms >> DUE_STEP_BITS, each.is_withheld


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
        if number > NUMBER_MAX:
            break
        yield number
        number = shift = 0
    if shift or number:
        raise ValueError(f"progress value of {len(value)} bytes: ends within a number, or has one above 63 bits")

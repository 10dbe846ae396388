"""Ranges of messages that the primary may have and the journal does not: they have to be compared by id.

The file `missed` has its whole size from the start, so that a full disk can still take a record: two slots of 32 KiB, each
"PSTKMISS" ‖ u64 turn ‖ u32 size ‖ u32 crc32c of turn and text ‖ JSON. The valid slot with the higher turn counts.
"""

import json
import os
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import google_crc32c

SLOT_BYTES = 32 << 10
RANGES_MAX = 50
"""Above it, the ranges of a topic's queues become one; above it again, those of all topics."""
ALL_QUEUES = -1
ALL_TOPICS = "*"
_HEAD = struct.Struct("<8sQII")
_MAGIC = b"PSTKMISS"


class MissedRange(NamedTuple):
    """Messages between two times, which no intent covers.

    Attributes:
        topic: ALL_TOPICS: of any topic with a secondary.
        queue: ALL_QUEUES: of any queue.
        first, last: offsets at the primary; None: it tells none, or they are not known.
        messages: number of those that are known to be missed; 0: not known, perhaps none.
    """

    topic: str
    queue: int
    from_ms: int
    to_ms: int
    first: int | None
    last: int | None
    messages: int
    reason: str


class MissedRanges:
    """The ranges of one journal.

    Args:
        path: None: they are kept in memory alone, by a proxy without a journal.
    Attributes:
        count: messages missed since the start.
        is_dirty: something is not in the file yet.
    """

    def __init__(self, path: Path | None, now_ms: Callable[[], int]) -> None:
        self._path, self._now_ms = path, now_ms
        self._ranges: dict[tuple[str, int], MissedRange] = {}
        self._turn, self.count, self.is_dirty = 0, 0, False
        if path is not None:
            if not path.exists():
                _allocate(path)
            self._turn, found = read(path)
            self._ranges = {(each.topic, each.queue): each for each in found}

    @property
    def all(self) -> list[MissedRange]:
        return list(self._ranges.values())

    def add(self, topic: str, queue: int, offset: int | None, count: int, reason: str) -> None:
        """Record messages that the primary has just stored."""
        now_ms = self._now_ms()
        self._join(MissedRange(topic, queue, now_ms, now_ms, offset, offset, count, reason))
        self.count += count

    def add_span(self, from_ms: int, to_ms: int, reason: str) -> None:
        """Record that messages of any topic may be missing, which the primary has stored between two times."""
        self._join(MissedRange(ALL_TOPICS, ALL_QUEUES, from_ms, to_ms, None, None, 0, reason))

    def forget(self, compared: Collection[tuple[str, int, int, int]]) -> None:
        """Forget ranges that both sides were compared for, and that have not grown since. Raises OSError.

        Args:
            compared: topic, queue and both times of each, as they were before the comparison began.
        """
        kept = {key: each for key, each in self._ranges.items() if each[:4] not in compared}
        if len(kept) < len(self._ranges):
            self._ranges, self.is_dirty = kept, True
            self.write()

    def write(self) -> None:
        """Write all ranges to the file, durably. Blocks the thread. Raises OSError; they stay dirty."""
        if self._path is None or not self.is_dirty:
            return
        self.is_dirty = False
        try:
            self._turn += 1
            _write(self._path, self._turn, self.all)
        except OSError:
            self.is_dirty = True
            raise

    def _join(self, found: MissedRange) -> None:
        key = (found.topic, found.queue)
        if key not in self._ranges and len(self._ranges) >= RANGES_MAX:
            self._shrink()
            wide = {each.topic for each in self.all if each.queue == ALL_QUEUES}
            topic = found.topic if found.topic in wide else ALL_TOPICS
            found = found._replace(topic=topic, queue=ALL_QUEUES, first=None, last=None)
            key = (topic, ALL_QUEUES)
        before = self._ranges.get(key)
        self._ranges[key] = found if before is None else joined(before, found)
        self.is_dirty = True

    def _shrink(self) -> None:
        """One range per topic; if those are as many, one for all topics."""
        topics = {each.topic for each in self.all}
        is_wide = len(topics) > RANGES_MAX // 2
        merged: dict[tuple[str, int], MissedRange] = {}
        for each in self.all:
            wide = each._replace(topic=ALL_TOPICS if is_wide else each.topic, queue=ALL_QUEUES, first=None, last=None)
            key = (wide.topic, wide.queue)
            merged[key] = joined(merged[key], wide) if key in merged else wide
        self._ranges = merged


def joined(one: MissedRange, other: MissedRange) -> MissedRange:
    """The smallest range that covers both, under the first one's name."""
    ends = [each for each in (one.first, one.last, other.first, other.last) if each is not None]
    has_offsets = one.first is not None and other.first is not None
    return one._replace(
        from_ms=min(one.from_ms, other.from_ms),
        to_ms=max(one.to_ms, other.to_ms),
        first=min(ends) if has_offsets else None,
        last=max(ends) if has_offsets else None,
        messages=one.messages + other.messages,
    )


def read(path: Path) -> tuple[int, list[MissedRange]]:
    """The turn and the ranges of a file; none without a valid slot."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0, []
    found = [_slot(data[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
    turn, ranges = max((each for each in found if each is not None), key=lambda each: each[0], default=(0, []))
    return turn, [MissedRange(*each) for each in ranges]


def _slot(data: bytes) -> tuple[int, list] | None:
    if len(data) < _HEAD.size:
        return None
    magic, turn, size, checksum = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + size]
    if magic != _MAGIC or len(text) != size or _checksum(turn, text) != checksum:
        return None
    return turn, json.loads(text)


def _write(path: Path, turn: int, ranges: list[MissedRange]) -> None:
    text = json.dumps(ranges).encode()
    data = _HEAD.pack(_MAGIC, turn, len(text), _checksum(turn, text)) + text
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if os.pwrite(file, data, SLOT_BYTES * (turn % 2)) != len(data):
            raise OSError(28, "no space", str(path))
        os.fdatasync(file)
    finally:
        os.close(file)


def _allocate(path: Path) -> None:
    """Write the file with all its bytes: a later record needs no room."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(file, bytes(2 * SLOT_BYTES), 0)
        os.fsync(file)
    finally:
        os.close(file)


def _checksum(turn: int, text: bytes) -> int:
    return google_crc32c.value(struct.pack("<Q", turn) + text)

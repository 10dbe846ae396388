"""Relocation of live records: topics, progress and counters whose only record in the log is in the segment to delete.

They are appended again before the segment is deleted, so that the log alone still rebuilds everything. A record that
differs from the view, or that a later segment repeats, is not live and is left out. Of a batch that does not verify
nothing tells which records it had, so everything of its kind that the view has is appended again. Of a forgotten topic
nothing is live: the record that forgets it is later in the log than all others of its id, so it goes last.

How far a source is copied is told by the last copied batch of the queue. If that one is in the segment, a record of
progress takes its place.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice

from common.limited_log import LimitedLog
from engine.log.format import (
    BATCH_HEADER_SIZE,
    CONTROL_TOPIC_ID,
    KIND_COUNTERS,
    KIND_PROGRESS,
    KIND_TOPIC,
    OFFSET_END,
    pack_counter,
    pack_progress,
    pack_topic,
    parse_counter,
    parse_progress,
    parse_topic,
    split_records,
)
from engine.log.read.unreadable import LASTS_MS
from engine.log.segment.native import BatchReader
from engine.log.segment.segment import Segment, read_or_nothing
from engine.log.types import Topic
from engine.log.view import View, after_prefix
from engine.log.write.control import ControlWriter
from engine.log.write.copied_state import copied_key, copied_state, queues_with_sources

limited = LimitedLog(logging.getLogger(__name__))

STEP = 200
"""Queues, or records of the view, in one step. Each may cost a look-up in RocksDB."""

_DIRECTORY, _COPIED, _UNREAD = KIND_COUNTERS + 1, KIND_COUNTERS + 2, KIND_COUNTERS + 3
Place = tuple[int, int, bytes]
"""A step's place in the order of all steps: kind, _DIRECTORY, _COPIED or _UNREAD; address, entry or kind; key."""


class Relocator:
    """Appends again the live records of one segment.

    Args:
        end_of: returns the end offset of (topic id, queue).
        now_ms: monotonic clock.
    """

    def __init__(
        self, control: ControlWriter, view: View, batches: BatchReader, end_of: Callable[[int, int], int],
        now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._control, self._view, self._batches, self._end_of = control, view, batches, end_of
        self._now_ms = now_ms
        self._base, self._done = -1, (0, 0, b"")
        self._unread_since: int | None = None

    def relocate(self, segment: Segment) -> Iterator[None]:
        """Relocate in steps of a few milliseconds.

        The next call for a segment continues where one that raised has stopped: the room of a full disk is not spent on
        records that it has already.

        Raises:
            DiskFullError: there is no room.
            OSError: the disk cannot read a batch; after a minute it counts as damaged.
        """
        if segment.base != self._base:
            self._base, self._done, self._unread_since = segment.base, (0, 0, b""), None
        for place, kind, live in self._steps(segment, self._done):
            self._control.append(kind, live)
            self._done = place
            yield

    def _steps(self, segment: Segment, done: Place) -> Iterator[tuple[Place, int, list[bytes]]]:
        """(place, kind, payloads of live records) of each step after `done`. They are live until the next one is asked
        for."""
        for kind, is_current in (
            (KIND_TOPIC, self._is_topic),
            (KIND_PROGRESS, self._is_progress),
            (KIND_COUNTERS, self._is_counter),
        ):
            for _, at, size, _, _ in segment.source().entries(CONTROL_TOPIC_ID, kind):
                if (kind, at, b"\xff") <= done:
                    continue
                payloads = self._payloads(segment, at, size)
                if payloads is None:
                    for key, known in self._all(kind, done[2] if done[:2] == (kind, at) else b""):
                        yield (kind, at, key), kind, known
                    yield (kind, at, b"\xff"), kind, []
                else:
                    yield (kind, at, b"\xff"), kind, [payload for payload in payloads if is_current(payload)]
        assert segment.sealed is not None
        for start in range(0, segment.sealed.directory_count, STEP):
            if (_DIRECTORY, start, b"") > done:
                idle = [
                    pack_counter(topic_id, queue, next_offset)
                    for topic_id, queue, _, next_offset in segment.sealed.queues(start, STEP)
                    if topic_id != CONTROL_TOPIC_ID and self._is_end(topic_id, queue, next_offset)
                ]
                yield (_DIRECTORY, start, b""), KIND_COUNTERS, idle
        for key, copied in self._last_copied(segment, done[2] if done[0] == _COPIED else b""):
            if (_COPIED, 0, key) > done:
                yield (_COPIED, 0, key), KIND_PROGRESS, copied
        if segment.is_partial:
            for kind in (KIND_TOPIC, KIND_PROGRESS, KIND_COUNTERS):
                for key, known in self._all(kind, done[2] if done[:2] == (_UNREAD, kind) else b""):
                    if (_UNREAD, kind, key) >= done:
                        yield (_UNREAD, kind, key), kind, known

    def _last_copied(self, segment: Segment, after: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """(key, payloads) of queues whose last copied batch is in the segment, from after that key of the view on."""
        source = segment.source()
        while found := list(islice(queues_with_sources(self._view, after), STEP)):
            payloads = []
            for _, topic_id, queue in found:
                first, end = source.first_offset(topic_id, queue), source.committed_end(topic_id, queue, OFFSET_END)
                state = copied_state(self._view, topic_id, queue)
                if first is not None and end is not None and state is not None and first < state.end <= end:
                    payloads.append(pack_progress(copied_key(topic_id, queue), state.encode()))
            # All numbers of the last queue are passed.
            after = found[-1][0][:-4] + b"\xff\xff\xff\xff"
            yield after, payloads

    def _payloads(self, segment: Segment, at: int, size: int) -> list[bytes] | None:
        """Records of a control batch; None when it is damaged. Raises OSError while it may become readable."""
        now_ms = self._now_ms()
        if self._unread_since is None or now_ms - self._unread_since < LASTS_MS:
            try:
                batch = segment.file.read_at(size, at)
            except OSError:
                self._unread_since = now_ms if self._unread_since is None else self._unread_since
                raise
        else:
            batch = read_or_nothing(segment, at, size)
        if self._batches.check(batch, 0, size, segment.base + at) == size:
            return list(split_records(batch[BATCH_HEADER_SIZE:]))
        limited.error(
            "file=%s position=%d: a control batch does not verify: all records of its kind are relocated",
            segment.path, segment.base + at,
        )  # fmt: skip
        return None

    def _all(self, kind: int, after: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """(last key, payloads) of all records of the kind that the view has, from after that key of it on."""
        if kind == KIND_COUNTERS:
            yield from self._all_counters(after)
            return
        prefix, pack = (b"i", _packed_topic) if kind == KIND_TOPIC else (b"p", _packed_progress)
        while found := self._some(prefix, after):
            after = found[-1][0]
            yield after, [pack(key, value) for key, value in found]

    def _all_counters(self, after: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        while found := self._some(b"i", after):
            for key, value in found:
                topic_id, queues = int.from_bytes(key[1:], "big"), int.from_bytes(value[:4], "little")
                for start in range(0, queues, STEP):
                    ends = [(queue, self._end_of(topic_id, queue)) for queue in range(start, min(start + STEP, queues))]
                    yield after, [pack_counter(topic_id, queue, end) for queue, end in ends if end]
                after = key

    def _some(self, prefix: bytes, after: bytes) -> list[tuple[bytes, bytes]]:
        """The next entries of the view with the prefix after that key."""
        return list(islice(self._view.scan(after + b"\0" if after else prefix, after_prefix(prefix)), STEP))

    def _is_topic(self, payload: bytes) -> bool:
        topic = Topic.stored(*parse_topic(payload))
        return self._view.topic_by_id(topic.id) == topic

    def _is_progress(self, payload: bytes) -> bool:
        key, value = parse_progress(payload)
        return bool(value) and self._view.get(b"p" + key) == value

    def _is_counter(self, payload: bytes) -> bool:
        return self._is_end(*parse_counter(payload))

    def _is_end(self, topic_id: int, queue: int, next_offset: int) -> bool:
        return self._view.topic_by_id(topic_id) is not None and self._end_of(topic_id, queue) == next_offset


def _packed_topic(key: bytes, value: bytes) -> bytes:
    return pack_topic(int.from_bytes(key[1:], "big"), value[4:].decode(), int.from_bytes(value[:4], "little"))


def _packed_progress(key: bytes, value: bytes) -> bytes:
    return pack_progress(key[1:], value)

"""The log's twin in memory, for tests of what is built on it. Same methods, same meanings; nothing is kept anywhere.

A record is whatever bytes the test appends; a batch is one `store()`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from engine.errors import OffsetOutOfRangeError, UnknownTopicError
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, CODE_OK, padded, whole_records
from engine.log.types import Piece, Topic


class _Queue:
    def __init__(self) -> None:
        self.first_offset = self.end_offset = 0
        self.bases: list[int] = []
        self.batches: list[tuple[list[bytes], int]] = []


class MemoryLog:
    """What delivery needs of `engine.log.Log`."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._queues: dict[tuple[int, int], _Queue] = {}
        self._progress: dict[bytes, bytes] = {}
        self._watched: set[tuple[int, int]] = set()
        self._woken: list[tuple[int, int]] = []
        self._undurable: list[Callable[[], None]] = []
        self.progress_writes = 0
        self.is_durable_at_once = True
        self.end_position = 0

    def append(self, batches: bytes, count: int, now_ms: int) -> list[tuple[int, int]]:
        """As the log's, but everything is taken."""
        results, at = [], 0
        for _ in range(count):
            _, size, _, _, _, _, topic_id, queue, _, _, _, _ = BATCH_HEADER.unpack_from(batches, at)
            records = whole_records(batches[at + BATCH_HEADER_SIZE : at + size])
            results.append((CODE_OK, self.store(topic_id, queue, list(records), now_ms)))
            at += padded(size)
        self.end_position += at
        return results

    def when_durable(self, position: int, callback: Callable[[], None]) -> None:
        """At once, or when `make_durable()` is called."""
        self._undurable.append(callback)
        if self.is_durable_at_once:
            self.make_durable()

    def make_durable(self) -> None:
        """What was appended so far is on the disk, as it were."""
        while self._undurable:
            self._undurable.pop(0)()

    def store(self, topic_id: int, queue: int, records: list[bytes], now_ms: int) -> int:
        """Append one batch; returns its base offset."""
        found = self._queue(topic_id, queue)
        base = found.end_offset
        found.bases.append(base)
        found.batches.append((records, now_ms))
        found.end_offset += len(records)
        if (topic_id, queue) in self._watched:
            self._watched.discard((topic_id, queue))
            self._woken.append((topic_id, queue))
        return base

    def retain(self, topic_id: int, queue: int, first_offset: int) -> None:
        """Make everything below unreadable, as retention does."""
        self._queue(topic_id, queue).first_offset = first_offset

    def create_topics(self, wanted: list[tuple[str, int]]) -> list[Topic]:
        for name, queues in wanted:
            old = self._topics.get(name)
            topic = Topic(old.id if old else len(self._topics) + 1, name, max(queues, old.queues if old else 0))
            self._topics[name] = topic
            for queue in range(topic.queues):
                self._queues.setdefault((topic.id, queue), _Queue())
        return [self._topics[name] for name, _ in wanted]

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: int) -> Topic | None:
        return next((topic for topic in self._topics.values() if topic.id == topic_id), None)

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        found = self._queue(topic_id, queue)
        return found.first_offset, found.end_offset

    def read(self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int) -> list[Piece]:
        found = self._queue(topic_id, queue)
        if not found.first_offset <= offset <= found.end_offset:
            raise OffsetOutOfRangeError(offset, found.first_offset, found.end_offset)
        pieces: list[Piece] = []
        while offset < found.end_offset and max_records > 0:
            at = bisect_right(found.bases, offset) - 1
            records, stored_at_ms = found.batches[at]
            chosen = records[offset - found.bases[at] :][:max_records]
            while len(chosen) > 1 and sum(map(len, chosen)) > max_bytes:
                chosen.pop()
            size = sum(map(len, chosen))
            if pieces and size > max_bytes:
                break
            pieces.append(Piece(offset, len(chosen), stored_at_ms, b"".join(chosen)))
            offset += len(chosen)
            max_records -= len(chosen)
            max_bytes -= size
        return pieces

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int:
        found = self._queue(topic_id, queue)
        at = bisect_left([stored for _, stored in found.batches], at_ms)
        return found.bases[at] if at < len(found.bases) else found.end_offset

    def watch(self, topic_id: int, queue: int) -> None:
        self._watched.add((topic_id, queue))

    def is_fetching(self, topic_id: int, queue: int) -> bool:
        """Memory is never cold."""
        return False

    def take_woken(self) -> list[tuple[int, int]]:
        woken, self._woken = self._woken, []
        return woken

    def put_progress(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        self.progress_writes += len(entries)
        self._progress.update(entries)

    def progress(self, prefix: bytes = b""):
        return iter(sorted((key, value) for key, value in self._progress.items() if key.startswith(prefix)))

    def _queue(self, topic_id: int, queue: int) -> _Queue:
        found = self._queues.get((topic_id, queue))
        if found is None:
            raise UnknownTopicError(f"topic id={topic_id} queue={queue}: unknown")
        return found

"""In-memory implementation of `DeliveryLog` for tests of delivery; nothing is stored.

A record is any bytes that the test appends; a batch is one `store()`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from common.names import split_stored_name
from engine.errors import EngineConfigError, OffsetOutOfRangeError, UnknownTopicError
from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    CODE_INVALID,
    CODE_OK,
    CODE_UNKNOWN_TOPIC,
    padded,
    whole_records,
)
from engine.log.growth import TopicGrowth
from engine.log.types import RecordSlice, Topic


class _StoredQueue:
    def __init__(self) -> None:
        self.first_offset = self.end_offset = 0
        self.bases: list[int] = []
        self.batches: list[tuple[list[bytes], int]] = []


class MemoryLog:
    """Implements `engine.log.port.DeliveryLog`.

    Args:
        now_ms: the wall clock.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[int, Topic] = {}
        self._last_id = 0
        self._queues: dict[tuple[int, int], _StoredQueue] = {}
        self._progress: dict[bytes, bytes] = {}
        self._watched: set[tuple[int, int]] = set()
        self._woken: list[tuple[int, int]] = []
        self._undurable: list[Callable[[], None]] = []
        self.progress_writes = 0
        self.is_durable_at_once = True
        self.end_position = 0
        self.growth = TopicGrowth(
            self._create, self.topic, self.bounds, self.put_progress, self.progress, now_ms,
            lambda: self._last_id + 1, self._forget,
        )  # fmt: skip
        self.create_topics, self.forget_topic = self.growth.create_topics, self.growth.forget_topic

    def append(self, batches: bytes, count: int, now_ms: int) -> list[tuple[int, int]]:
        """As the log's, but ids are not checked and there is always room."""
        results, at = [], 0
        for _ in range(count):
            _, size, _, _, _, _, topic_id, queue, _, _, _, _ = BATCH_HEADER.unpack_from(batches, at)
            code = self._refusal(topic_id, queue)
            base = 0
            if code == CODE_OK:
                records = whole_records(batches[at + BATCH_HEADER_SIZE : at + size])
                base = self.store(topic_id, queue, list(records), now_ms)
                self.end_position += padded(size)
            results.append((code, base))
            at += padded(size)
        return results

    def when_durable(self, position: int, callback: Callable[[], None]) -> None:
        """Call `callback` at once, or when `make_durable()` is called."""
        self._undurable.append(callback)
        if self.is_durable_at_once:
            self.make_durable()

    def make_durable(self) -> None:
        """Treat everything appended so far as synced."""
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
        """Make everything below the offset unreadable, as retention does."""
        self._queue(topic_id, queue).first_offset = first_offset

    def _create(self, wanted: Iterable[tuple[str, int]]) -> list[Topic]:
        asked = list(wanted)
        for name, queues in asked:
            if queues < 1:
                raise EngineConfigError([f"topic {name}: {queues} queues: use at least 1"])
        for stored, queues in asked:
            name, made_ms = split_stored_name(stored)
            old = self._topics.get(name)
            if old is not None and 0 < made_ms < old.made_ms:
                raise UnknownTopicError(f"topic {name}: its definition of {made_ms} was replaced")
            if old is None or 0 < old.made_ms < made_ms:
                self._last_id += 1
                old = Topic(self._last_id, name, 0)
            topic = Topic(old.id, name, max(queues, old.queues), made_ms or old.made_ms)
            self._topics[name] = self._by_id[topic.id] = topic
            for queue in range(topic.queues):
                self._queues.setdefault((topic.id, queue), _StoredQueue())
        return [self._topics[split_stored_name(name)[0]] for name, _ in asked]

    def _forget(self, topic: Topic) -> None:
        del self._by_id[topic.id]
        if self._topics[topic.name].id == topic.id:
            del self._topics[topic.name]
        for queue in range(topic.queues):
            del self._queues[topic.id, queue]

    def end_if_empty(self, topic: Topic) -> int | None:
        """As the log's; what `retain()` hides counts as deleted here."""
        queues = [self._queues[topic.id, queue] for queue in range(topic.queues)]
        is_held = topic.id == self._last_id or any(each.first_offset < each.end_offset for each in queues)
        return None if is_held else sum(each.end_offset for each in queues)

    def topics(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[Topic]:
        """As the log's."""
        names = sorted(name for name in self._topics if name.startswith(prefix) and name > after)
        return [self._topics[name] for name in names[:limit]]

    def topic(self, name: str) -> Topic | None:
        name, made_ms = split_stored_name(name)
        found = self._topics.get(name)
        return None if found is None or (made_ms and found.made_ms not in (0, made_ms)) else found

    def topic_by_id(self, topic_id: int) -> Topic | None:
        return self._by_id.get(topic_id)

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        found = self._queue(topic_id, queue)
        return found.first_offset, found.end_offset

    def end(self, topic_id: int, queue: int) -> int:
        return self._queue(topic_id, queue).end_offset

    def used_queues(self, topic_id: int) -> set[int]:
        return {queue for (owner, queue), each in self._queues.items() if owner == topic_id and each.end_offset}

    def read(
        self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int, *, whole: bool = False
    ) -> list[RecordSlice]:
        found = self._queue(topic_id, queue)
        if not found.first_offset <= offset <= found.end_offset:
            raise OffsetOutOfRangeError(offset, found.first_offset, found.end_offset)
        slices: list[RecordSlice] = []
        while offset < found.end_offset and max_records > 0 and (max_bytes > 0 or not slices):
            at = bisect_right(found.bases, offset) - 1
            records, stored_at_ms = found.batches[at]
            wanted = records[offset - found.bases[at] :][:max_records]
            chosen = wanted if whole else _fitting(wanted, max_bytes, is_first=not slices)
            if not chosen:
                break
            slices.append(RecordSlice(offset, len(chosen), stored_at_ms, b"".join(chosen)))
            offset += len(chosen)
            max_records -= len(chosen)
            max_bytes -= sum(map(len, chosen))
            if len(chosen) < len(wanted):
                break
        return slices

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int:
        found = self._queue(topic_id, queue)
        at = bisect_left([stored for _, stored in found.batches], at_ms)
        return max(found.bases[at] if at < len(found.bases) else found.end_offset, found.first_offset)

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
        for key, value in entries:
            if value:
                self._progress[key] = value
            else:
                self._progress.pop(key, None)

    def progress(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self._progress.items() if key.startswith(prefix)))

    def since_leases_ms(self) -> int | None:
        """It follows no master."""
        return None

    def _refusal(self, topic_id: int, queue: int) -> int:
        topic = self.topic_by_id(topic_id)
        if topic is None:
            return CODE_UNKNOWN_TOPIC
        return CODE_OK if queue < topic.queues else CODE_INVALID

    def _queue(self, topic_id: int, queue: int) -> _StoredQueue:
        found = self._queues.get((topic_id, queue))
        if found is None:
            raise UnknownTopicError(f"topic={topic_id} queue={queue}: unknown")
        return found


def _fitting(records: list[bytes], max_bytes: int, *, is_first: bool) -> list[bytes]:
    """As many records as fit, but at least one when it is the first of an answer."""
    chosen: list[bytes] = []
    for record in records:
        if len(record) > max_bytes and (chosen or not is_first):
            break
        chosen.append(record)
        max_bytes -= len(record)
    return chosen

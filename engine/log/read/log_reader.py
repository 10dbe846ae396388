"""Reading as the layers above call it: by topic and queue, at or above the log start offset, and woken when more
can be read."""

from collections.abc import Callable

from engine.errors import OffsetOutOfRangeError, StoreDamagedError, UnknownTopicError, UnreadableError
from engine.log.read.cold import ColdReads
from engine.log.read.queue_reader import QueueReader
from engine.log.read.start_offsets import StartOffsets
from engine.log.types import RecordSlice
from engine.log.write.native import Appender


class LogReader:
    """Checks the arguments of reads; `QueueReader` finds the records.

    Returns records up to the end position. A replicated log will end reads at the confirmed position instead.
    """

    def __init__(self, queues: QueueReader, start_offsets: StartOffsets, appender: Appender, cold: ColdReads) -> None:
        self._queues, self._start_offsets, self._appender, self._cold = queues, start_offsets, appender, cold
        self.unreadable = queues.unreadable
        self._queue_count: Callable[[int], int] = appender.queue_count

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        """(first offset, end offset): records with first <= offset < end can be read.

        Raises UnknownTopicError; UnreadableError when the disk cannot read the view, and the queue is woken later.
        """
        try:
            self._check(topic_id, queue)
            first, end = self._queues.bounds(topic_id, queue)
            return max(first, min(self._start_offsets.of(topic_id, queue), end)), end
        except (OSError, StoreDamagedError) as error:
            raise self._unreadable(topic_id, queue, error) from error

    def end(self, topic_id: int, queue: int) -> int:
        """The end offset of `bounds` alone, which mostly costs look-ups in memory only. Raises as `bounds` does."""
        try:
            self._check(topic_id, queue)
            return self._queues.end(topic_id, queue)
        except (OSError, StoreDamagedError) as error:
            raise self._unreadable(topic_id, queue, error) from error

    def used_queues(self, topic_id: int) -> set[int]:
        """At least those of the topic's queues that have, or had, a record. Costs a seek per queue with sealed records.

        Raises UnreadableError.
        """
        try:
            return self._queues.used(topic_id, self._queue_count(topic_id))
        except (OSError, StoreDamagedError) as error:
            raise UnreadableError(f"topic={topic_id}: cannot be read now: {error}") from error

    def read(
        self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int, *, whole: bool = False
    ) -> list[RecordSlice]:
        """Records from `offset` on, verified. The first one is returned even when it is larger than `max_bytes`.

        Empty at the end of the queue. Also empty when the records are cold: they are fetched, and `take_woken()`
        returns the queue when they are there. Other reads take the page cache or the disk, and then block.

        Args:
            whole: return the whole batch in which `max_bytes` ends; it was read and verified anyway.
        Raises:
            UnknownTopicError: there is no such topic or queue.
            OffsetOutOfRangeError: `offset` is outside `bounds`.
            CorruptionError: the record at `offset` cannot be served; `next_offset` follows the damage. Damage
                further on only ends the answer.
            UnreadableError: the disk cannot read the record now. `take_woken()` returns the queue when it is time for
                another try; an error that lasts for a minute becomes a CorruptionError.
        """
        try:
            self._check(topic_id, queue)
            start = self._start_offsets.of(topic_id, queue)
        except (OSError, StoreDamagedError) as error:
            raise self._unreadable(topic_id, queue, error) from error
        if not start <= offset < 1 << 63:
            raise OffsetOutOfRangeError(offset, *self.bounds(topic_id, queue))
        return self._queues.read(topic_id, queue, offset, max_records, max_bytes, whole=whole)

    def distance(self, topic_id: int, queue: int, offset: int) -> int:
        """Bytes from the segment that has the record to the end of the log, with this segment; 0: it is not sealed.

        Costs look-ups in memory. Raises UnknownTopicError.
        """
        self._check(topic_id, queue)
        try:
            return self._queues.distance(topic_id, queue, offset)
        except (OSError, StoreDamagedError):
            return 0  # the read tells

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int:
        """Offset of the first record stored at or after `at_ms`, else the end offset.

        Exact while the clock does not step back. Raises UnknownTopicError.
        """
        self._check(topic_id, queue)
        return max(self._queues.offset_at_time(topic_id, queue, at_ms), self._start_offsets.of(topic_id, queue))

    def take_woken(self) -> list[tuple[int, int]]:
        """The armed queues that got records since the last call, as (topic id, queue). Their records can be read."""
        woken = self._appender.take_woken()
        if self.unreadable.waiting:
            woken = woken + self.unreadable.take_due()
        return woken + self._cold.take_woken() if self._cold.has_woken else woken

    def is_fetching(self, topic_id: int, queue: int) -> bool:
        """Whether a read of the queue returned nothing because its records are being fetched or tried again."""
        return (topic_id, queue) in self.unreadable.waiting or self._cold.waits(topic_id, queue)

    def _unreadable(self, topic_id: int, queue: int, error: Exception) -> UnreadableError:
        """The error for a view that the disk cannot read. The queue is woken when it is time for another try."""
        self.unreadable.refused((topic_id, queue), error)
        return UnreadableError(f"topic={topic_id} queue={queue}: cannot be read now: {error}")

    def _check(self, topic_id: int, queue: int) -> None:
        queues = self._queue_count(topic_id)
        if not 0 <= queue < queues:
            raise UnknownTopicError(f"topic={topic_id} queue={queue}: unknown: the topic has {queues} queues")

"""The timers' records in the log, and their state in the view."""

from array import array
from collections.abc import Callable, Iterator, Mapping

from engine.env.base import File
from engine.log.format import CONTROL_TOPIC_ID, KIND_TIMER, KIND_TIMER_MARK, SEGMENT_HEADER_SIZE, pack_timer_mark
from engine.log.read.queue_reader import QueueReader
from engine.log.segment.patience import Patience
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.view import View
from engine.log.write.writer import LogWriter


class TimerLog:
    """The timers' side of a log: TIMER and TIMER_MARK records, by their address. Implements
    `engine.log.port.TimerRecords`.

    Attributes:
        fired: what recovery found: (base of the segment, byte address, size) of batches of fired timers that may be
            in no mark.
        batch_bytes_max: a larger batch fits into no segment.
        monotonic_ms: the monotonic clock.
        patience: of the start that reads all pending timers.
        waited: bases of segments for which the start has waited long enough: what can be read of them is taken.
    """

    def __init__(
        self, writer: LogWriter, reader: QueueReader, segments: LogSegments, view: View,
        now_ms: Callable[[], int], monotonic_ms: Callable[[], int], segment_bytes: int,
        fired: list[tuple[int, int, int]], patience: Patience, waited: set[int],
    ) -> None:  # fmt: skip
        self._waited = waited
        self._appender, self._control, self._refusal = writer.appender, writer.control, writer.refusal
        self._checkpoints, self._reader, self._segments, self._view = writer.checkpoints, reader, segments, view
        self._now_ms, self.monotonic_ms = now_ms, monotonic_ms
        self.log_id, self.fired, self.patience = segments.active.header.log_id, fired, patience
        self.batch_bytes_max = segment_bytes - SEGMENT_HEADER_SIZE
        self.when_durable, self.queue_count = writer.durability.when_durable, writer.appender.queue_count
        self.old_counts: Callable[[int], list[int]] = lambda topic_id: []
        """Former numbers of queues of a topic, by its id."""
        self.owns: Callable[[int, int], bool] = lambda topic_id, queue: True
        """Whether a topic's queue is this engine's."""

    @property
    def end_position(self) -> int:
        """Bytes below are in the page cache and readable."""
        return self._appender.end_position

    @property
    def active_base(self) -> int:
        """Base of the segment that is being written."""
        return self._segments.active.base

    @property
    def refusal(self) -> str:
        """Reason with which appends of messages are refused at present; empty when they are accepted."""
        return self._refusal.sentence

    def append(self, batches: bytes, count: int) -> list[tuple[int, int]]:
        """As `Log.append`, for batches of any kind, and also while messages are refused for lack of room."""
        return self._appender.append(batches, count, self._now_ms(), trusted=True)

    def file_of(self, base: int) -> File | None:
        """File of the segment at `base`; None when there is no such segment."""
        segment = self._segments.at(base)
        return None if segment is None else segment.file

    def read_at(self, base: int, at: int, size: int) -> bytes:
        """Bytes of the segment at `base`, as they are; empty when there is no such segment."""
        file = self.file_of(base)
        return b"" if file is None else file.read_at(size, at)

    def first_copy(self, topic_id: int, shown_id: bytes) -> tuple[int, int] | None:
        """(queue, offset) of a message with that id which the topic received within the id's window."""
        return self._appender.ids.find_id(topic_id, shown_id, self._appender.id_time.now_ms())

    def segments(self) -> Iterator[tuple[Segment, list[int]]]:
        """Segments with pending timers, in order, each with the sorted addresses of its timers that have ended.

        For the start: waits while the disk cannot read a segment's index, and then takes what can be read.
        """
        for base in self._reader.segments_of(CONTROL_TOPIC_ID, KIND_TIMER):
            ended = self._view.ended_timers(base)
            segment = self._opened(base) if ended is not None else None
            if segment is not None and ended is not None:
                yield segment, ended

    def _opened(self, base: int) -> Segment | None:
        while base not in self._waited:
            try:
                return self._segments.at(base)
            except OSError:
                if not self.patience.wait():
                    self._waited.add(base)
        return self._segments.at(base)

    def mark(self, ended: Mapping[int, list[int]], covered_to: int) -> None:
        """Append that these timers have ended: base of the segment to byte addresses.

        One batch: all of them or none.
        """
        marks = [pack_timer_mark(covered_to, base, addresses) for base, addresses in ended.items()]
        offset = self._control.append(KIND_TIMER_MARK, marks)
        for base, addresses in ended.items():
            self._view.put_ended_timers(base, offset, array("I", addresses).tobytes())
        self._checkpoints.bound_pending()

    def put_fired_from(self, position: int | None) -> None:
        """Note, before timers fire, the lowest position of their batches that no mark covers; None: all are covered."""
        self._view.put_fired_from(position)

    def all_ended(self, base: int) -> None:
        """Note that all timers of a sealed segment have ended; the next start does not read it."""
        self._view.put_all_ended(base)

    def forget(self, base: int) -> None:
        """Note that nothing of a segment is pending, which is going to be deleted.

        Its marks stay ended until its file is gone: a start may come before.
        """
        self._view.put_all_ended(base)

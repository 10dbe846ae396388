"""What the timers keep in the log, and what of it outlives a checkpoint in the view."""

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from engine.env.base import File
from engine.log.format import CONTROL_TOPIC_ID, KIND_TIMER, KIND_TIMER_MARK, SEGMENT_HEADER_SIZE, pack_timer_mark
from engine.log.native import Appender
from engine.log.read.reader import Reader
from engine.log.segment.segment import Segment
from engine.log.view import View
from engine.log.write.control import ControlWriter


class Host(Protocol):
    """The log, as far as timers need it."""

    log_id: bytes

    def refusal(self) -> str: ...
    def when_durable(self, position: int, callback: Callable[[], None]) -> None: ...
    def bound_pending(self) -> None: ...


class TimerLog:
    """The timers' side of a log.

    Attributes:
        fired: what recovery found: (base of the segment, byte address, size) of batches of fired timers that may be in no mark.
        batch_bytes_max: a larger batch fits into no segment.
    """

    def __init__(
        self, host: Host, appender: Appender, reader: Reader, control: ControlWriter, view: View,
        now_ms: Callable[[], int], segment_bytes: int, fired: list[tuple[int, int, int]],
    ) -> None:  # fmt: skip
        self._host, self._appender, self._reader, self._control, self._view = host, appender, reader, control, view
        self._now_ms = now_ms
        self.log_id, self.fired = host.log_id, fired
        self.batch_bytes_max = segment_bytes - SEGMENT_HEADER_SIZE
        self.when_durable, self.queue_count = host.when_durable, appender.queue_count

    @property
    def end_position(self) -> int:
        """Bytes below are in the page cache and readable."""
        return self._appender.end_position

    @property
    def active_base(self) -> int:
        """Of the segment that is being written."""
        return self._reader.active.base

    @property
    def refusal(self) -> str:
        """Why appends of messages are refused at present; empty when they are not."""
        return self._host.refusal()

    def append(self, batches: bytes, count: int) -> list[tuple[int, int]]:
        """As `Log.append`, for batches of any kind, and also while messages are refused for want of room."""
        return self._appender.append(batches, count, self._now_ms(), trusted=True)

    def place_of(self, offset: int) -> tuple[int, int]:
        """(base of its segment, byte address) of the TIMER batch that begins with the record at that offset."""
        found = self._reader.find(CONTROL_TOPIC_ID, KIND_TIMER, offset)
        assert found is not None
        return found[0].base, found[1].locate(CONTROL_TOPIC_ID, KIND_TIMER, offset)

    def file_of(self, base: int) -> File | None:
        """Of the segment at `base`; None when there is no such segment."""
        segment = self._reader.segment(base)
        return None if segment is None else segment.file

    def read_at(self, base: int, at: int, size: int) -> bytes:
        """Bytes of the segment at `base`, as they are; empty when there is no such segment."""
        file = self.file_of(base)
        return b"" if file is None else file.read_at(size, at)

    def first_copy(self, topic_id: int, shown_id: bytes) -> tuple[int, int] | None:
        """(queue, offset) of a message with that id which the topic has had within the id's window."""
        return self._appender.ids.find_id(topic_id, shown_id, self._now_ms())

    def segments(self) -> Iterator[tuple[Segment, list[int]]]:
        """Segments that hold timers of which some are pending, in order, with the sorted addresses of those that have ended."""
        for base in self._reader.segments_of(CONTROL_TOPIC_ID, KIND_TIMER):
            ended = self._view.ended_timers(base)
            segment = self._reader.segment(base) if ended is not None else None
            if segment is not None and ended is not None:
                yield segment, ended

    def mark(self, ended: Mapping[int, list[int]], covered_to: int) -> None:
        """Append that these timers have ended: base of the segment to byte addresses. One batch, so all of them or none."""
        marks = [pack_timer_mark(covered_to, base, addresses) for base, addresses in ended.items()]
        offset = self._control.append(KIND_TIMER_MARK, marks)
        for base, addresses in ended.items():
            self._view.put_ended_timers(base, offset, array("I", addresses).tobytes())
        self._host.bound_pending()

    def put_fired_from(self, position: int | None) -> None:
        """Say before timers fire that batches of theirs which no mark covers begin here at the earliest; None: all are covered."""
        self._view.put_fired_from(position)

    def all_ended(self, base: int) -> None:
        """All timers of that sealed segment have ended; the next start need not look at it."""
        self._view.put_all_ended(base)

    def forget(self, base: int) -> None:
        """The segment is gone."""
        self._view.forget_timers(base)

"""Relocation of live records: topics, progress and counters whose only record in the log is in the segment to delete.

They are appended again before the segment is deleted, so that the log alone still rebuilds everything. A record that
differs from the view, or that a later segment repeats, is not live and is left out.
"""

from collections.abc import Callable, Iterator

from engine.log.format import (
    CONTROL_TOPIC_ID,
    KIND_COUNTERS,
    KIND_PROGRESS,
    KIND_TOPIC,
    pack_counter,
    parse_counter,
    parse_progress,
    parse_topic,
)
from engine.log.segment.native import BatchReader
from engine.log.segment.segment import Segment
from engine.log.types import Topic
from engine.log.view import View
from engine.log.write.control import ControlWriter, read_control

STEP = 200
"""Queues checked in one step. Each may cost a look-up in RocksDB."""


class Relocator:
    """Appends again the live records of one segment.

    Args:
        end_of: returns the end offset of (topic id, queue).
    """

    def __init__(
        self, control: ControlWriter, view: View, batches: BatchReader, end_of: Callable[[int, int], int]
    ) -> None:
        self._control, self._view, self._batches, self._end_of = control, view, batches, end_of

    def relocate(self, segment: Segment) -> Iterator[None]:
        """Relocate in steps of a few milliseconds.

        Raises DiskFullError; records that are there twice by then do no harm.
        """
        for kind, is_current in (
            (KIND_TOPIC, self._is_topic),
            (KIND_PROGRESS, self._is_progress),
            (KIND_COUNTERS, self._is_counter),
        ):
            for payloads in read_control(self._batches, segment, kind):
                self._control.append(kind, [payload for payload in payloads if is_current(payload)])
                yield
        assert segment.sealed is not None
        for start in range(0, segment.sealed.directory_count, STEP):
            idle = [
                pack_counter(topic_id, queue, next_offset)
                for topic_id, queue, _, next_offset in segment.sealed.queues(start, STEP)
                if topic_id != CONTROL_TOPIC_ID and self._end_of(topic_id, queue) == next_offset
            ]
            self._control.append(KIND_COUNTERS, idle)
            yield

    def _is_topic(self, payload: bytes) -> bool:
        topic = Topic.stored(*parse_topic(payload))
        return self._view.topic_by_id(topic.id) == topic

    def _is_progress(self, payload: bytes) -> bool:
        key, value = parse_progress(payload)
        return bool(value) and self._view.get(b"p" + key) == value

    def _is_counter(self, payload: bytes) -> bool:
        topic_id, queue, next_offset = parse_counter(payload)
        return self._end_of(topic_id, queue) == next_offset

"""Next offsets of queues that have no batch in the active segment: in older indexes, else in the view."""

from engine.log.segment.native import SegmentIndex
from engine.log.view import View


class NextOffsets:
    """Looks up the next offset of a queue.

    Args:
        next_topic_id: topics from this id on did not exist when the oldest remembered index began, so their queues
            begin at 0 and need no look-up.
        counters_max: queues of sealed segments to remember.
    """

    def __init__(self, view: View, next_topic_id: int, counters_max: int) -> None:
        self._view, self._counters_max = view, counters_max
        self.older: list[SegmentIndex] = []
        """Indexes of full segments, newest first. The appender asks them before it calls `load`."""
        self._fresh_from = [next_topic_id]

    def load(self, topic_id: int, queue: int) -> int:
        """The queue's next offset as of the sealed segments; for a queue that no index in memory knows."""
        return 0 if topic_id >= self._fresh_from[-1] else self._view.stored_end(topic_id, queue)

    def load_free(self, topic_id: int, queue: int) -> int:
        """The same for a new record: above the offsets of all records that a start may have been unable to read."""
        return 0 if topic_id >= self._fresh_from[-1] else self._view.free_offset(topic_id, queue)

    def add(self, full: SegmentIndex, next_topic_id: int) -> None:
        """Remember the index of a segment that is full now."""
        self._fresh_from.insert(0, next_topic_id)
        self.older.insert(0, full)

    def keep_counters(self, index: SegmentIndex) -> None:
        """Replace an index by its counters. In the sealing thread, once the segment's index file is written.

        Here and in `trim` the list changes by one step each, counted from its end: the loop only inserts at the front.
        """
        back = next(back for back in range(1, len(self.older) + 1) if self.older[-back] is index)
        self.older[-back] = index.counters()

    def trim(self, sealing: int) -> None:
        """Forget the oldest counters beyond the limit, but none of the `sealing` newest. In the sealing thread."""
        older = self.older
        while older and sealing < len(older) and sum(index.used for index in older) > self._counters_max:
            self._fresh_from.pop()
            older.pop()

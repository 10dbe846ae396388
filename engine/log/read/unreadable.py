"""Reads that the disk refuses: retried with growing pauses, and reported as lost only when the error lasts.

An error of a read may pass (a path to the disk, a full table of descriptors), and stepping over a message is final for
its group. So the queue rests, like one whose records are being fetched, while all others go on. A batch that cannot be
read for a minute counts as damaged. It stays in the log, and is tried again later for other readers.
"""

import logging
from collections.abc import Callable

from common.limited_log import LimitedLog

logger = LimitedLog(logging.getLogger(__name__))

RETRY_MS = 1000
RETRY_MS_MAX = 16_000
"""First and longest pause between two reads of the same bytes. On a bad sector each may block the loop for seconds."""

LASTS_MS = 60_000
"""Time after which a batch that still cannot be read counts as damaged."""

LOST_MS = 600_000
"""Time after which a batch that counts as damaged is tried again."""

PLACES_MAX = 1000

Queue = tuple[int, int]
"""Topic id, queue."""


class _Place:
    """A batch that cannot be read: its queue's offsets, and when it is tried again."""

    __slots__ = ("due_ms", "end", "first", "is_lost", "pause_ms", "since_ms")

    def __init__(self, first: int, end: int, now_ms: int) -> None:
        self.first, self.end, self.since_ms = first, end, now_ms
        self.pause_ms, self.is_lost = RETRY_MS, False
        self.due_ms = now_ms + RETRY_MS


class UnreadableBatches:
    """The batches that could not be read lately, and the queues that wait for another try.

    Args:
        now_ms: monotonic clock.

    Attributes:
        errors: refused reads so far.
        lost: batches that counted as damaged because of it.
        waiting: queues to wake, with the time.
        places: the batches, by queue.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.places: dict[Queue, list[_Place]] = {}
        self.waiting: dict[Queue, int] = {}
        self.errors = self.lost = 0

    def rests(self, queue: Queue, offset: int) -> int | None:
        """Offset after the batch at `offset` if that one is not to be read now; else None.

        The queue is woken at the next try.
        """
        place = self._place(queue, offset)
        if place is None or self._now_ms() >= place.due_ms:
            return None
        if not place.is_lost:
            self.waiting[queue] = place.due_ms
        return place.end

    def is_lost(self, queue: Queue, offset: int) -> bool:
        """Whether the batch at `offset` counts as damaged."""
        place = self._place(queue, offset)
        return place is not None and place.is_lost

    def failed(self, queue: Queue, offset: int, end: int, path: str) -> None:
        """Note that the batch that holds `offset` and ends before `end` could not be read."""
        now_ms = self._now_ms()
        place = self._place(queue, offset)
        if place is None:
            place = self._add(queue, _Place(offset, end, now_ms))
        else:
            place.pause_ms = min(2 * place.pause_ms, RETRY_MS_MAX)
            place.due_ms = now_ms + place.pause_ms
        self.errors += 1
        if now_ms - place.since_ms >= LASTS_MS:
            self.lost += not place.is_lost
            place.is_lost, place.due_ms = True, now_ms + LOST_MS
        else:
            self.waiting[queue] = place.due_ms
        logger.error(
            "file=%s topic=%d queue=%d offset=%d: the disk cannot read the batch: %s",
            path, *queue, offset, "it counts as lost" if place.is_lost else f"retry in {place.pause_ms} ms",
        )  # fmt: skip

    def refused(self, queue: Queue, error: Exception) -> None:
        """Note that a file or the view could not be read for the queue, which is woken for another try."""
        self.errors += 1
        self.waiting[queue] = self._now_ms() + RETRY_MS
        logger.error("topic=%d queue=%d: cannot be read now, retry in %d ms: %s", *queue, RETRY_MS, error)

    def healed(self, queue: Queue, offset: int) -> None:
        """Note that the batch at `offset` was read."""
        place = self._place(queue, offset)
        if place is not None:
            self.places[queue].remove(place)
            if not self.places[queue]:
                del self.places[queue]

    def take_due(self) -> list[Queue]:
        """The waiting queues whose time has come."""
        now_ms = self._now_ms()
        due = [queue for queue, due_ms in self.waiting.items() if due_ms <= now_ms]
        for queue in due:
            del self.waiting[queue]
        return due

    def _place(self, queue: Queue, offset: int) -> _Place | None:
        for place in self.places.get(queue, ()):
            if place.first <= offset < place.end:
                return place
        return None

    def _add(self, queue: Queue, place: _Place) -> _Place:
        if sum(map(len, self.places.values())) >= PLACES_MAX:
            self.places.clear()
        self.places.setdefault(queue, []).append(place)
        return place

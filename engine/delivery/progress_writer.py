"""Writing of progress: changed cursors, and the state of the lease clock, into the log."""

import logging
from collections.abc import Iterable

from common.limited_log import LimitedLog
from engine.delivery import leases
from engine.delivery.leases import LeaseClock
from engine.delivery.progress import NONE_YOUNG
from engine.delivery.queue_cursor import QueueCursor
from engine.errors import EngineError
from engine.log.port import DeliveryLog

limited = LimitedLog(logging.getLogger(__name__))

LARGE_RANGES = 16_384
RANGES_PER_MS = 64
"""A record of more than LARGE_RANGES is written less often: about 400 KB/s for one queue at most."""
YOUNG_MS = 300
"""Age of a lease up to which perhaps no client has seen it: more than an answer waits to be confirmed."""
AT_ONCE_BYTES_PER_MS = 8 << 10
"""Progress that is written at once: above 8 MiB/s the rest waits for the interval."""
AT_ONCE_BYTES_MAX = 256 << 10


class ProgressWriter:
    """Remembers changed cursors and writes their progress.

    Attributes:
        dirty: cursors that have changed. No set: a simulation repeats the order.
    """

    def __init__(self, store: DeliveryLog, lease_clock: LeaseClock) -> None:
        self._store, self._lease_clock = store, lease_clock
        self.dirty: dict[QueueCursor, None] = {}
        self._due: list[QueueCursor] = []  # cursors that were dirty when writing began
        self._not_before_ms: dict[QueueCursor, int] = {}  # of cursors with a large record
        self._room, self._room_ms = AT_ONCE_BYTES_MAX, 0
        self._young_until_ms: dict[QueueCursor, int] = {}  # of cursors that were written at once

    @property
    def has_news(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.dirty or self._due or self._lease_clock.has_news)

    def write(self, cursors_max: int | None, now_ms: int | None, *, is_final: bool) -> bool:
        """Write; see `Delivery.write_progress()`."""
        due, clock = self._due, self._lease_clock
        if not due and cursors_max is not None and now_ms is not None and self._not_before_ms:
            due.extend(self._timely(now_ms))
        elif not due:
            due.extend(self.dirty)
            self.dirty.clear()
        elif cursors_max is None:
            known = set(due)
            due.extend(each for each in self.dirty if each not in known)
            self.dirty.clear()
        step = due if cursors_max is None else due[-cursors_max:]
        if now_ms is not None:
            clock.turn(now_ms)
        entries = []
        if clock.has_news or (is_final and clock.is_used):
            # Before the cursors: a start that knows of a lease then always knows that its number is taken.
            entries.append((leases.KEY, clock.stored(is_final=is_final)))
        young = {} if cursors_max is None else dict.fromkeys(each for each in step if self._may_be_young(each))
        entries += [(cursor.key, self._encoded(cursor, are_short=cursor in young)) for cursor in step]
        if entries:
            # Removed once they are in the log: after a full disk the next call tries again.
            self._store.put_progress(entries)
            clock.was_stored()
        if step:
            del due[-len(step) :]
            self.dirty.update(young)
        for cursor in step:
            if cursor not in young:
                self._young_until_ms.pop(cursor, None)
            if len(cursor.in_flight) >= LARGE_RANGES:
                self._not_before_ms[cursor] = clock.now_ms + len(cursor.in_flight) // RANGES_PER_MS
        return not due

    def _timely(self, now_ms: int) -> list[QueueCursor]:
        """Take the dirty cursors but for those whose large record was written a short time ago."""
        for cursor in [cursor for cursor, at_ms in self._not_before_ms.items() if at_ms <= now_ms]:
            del self._not_before_ms[cursor]
        timely = [cursor for cursor in self.dirty if cursor not in self._not_before_ms]
        for cursor in timely:
            del self.dirty[cursor]
        return timely

    def write_at_once(self, changed: dict[QueueCursor, None]) -> None:
        """Write what clients are about to see of a group in order; what is not, the next call or the interval writes.

        Its young leases are stored as short ones that are no attempt: an answer that is lost with this process must not
        hold a key up for long. The interval writes them as they are once they are old.
        """
        clock = self._lease_clock
        self._room = min(AT_ONCE_BYTES_MAX, self._room + (clock.now_ms - self._room_ms) * AT_ONCE_BYTES_PER_MS)
        self._room_ms = clock.now_ms
        if self._room <= 0:
            return
        entries = [(cursor.key, self._encoded(cursor, are_short=True)) for cursor in changed]
        self._young_until_ms.update(dict.fromkeys(changed, clock.now_ms + YOUNG_MS))
        self._room -= sum(len(value) for _, value in entries)
        if clock.has_news:
            entries.insert(0, (leases.KEY, clock.stored()))
        changed.clear()
        try:
            self._store.put_progress(entries)
            clock.was_stored()
        except EngineError as error:
            limited.warning("progress of groups in order was not written at once: %s", error)

    def _encoded(self, cursor: QueueCursor, *, are_short: bool) -> bytes:
        """Return the stored form. `are_short`: its young leases are."""
        clock = self._lease_clock
        young_ms = clock.time_ms - YOUNG_MS if are_short else NONE_YOUNG
        return cursor.encoded_progress(clock.now_ms, clock.time_ms, clock.lead_ms, young_ms)

    def _may_be_young(self, cursor: QueueCursor) -> bool:
        """Whether it may have young leases: the next interval has to write it once more."""
        return self._young_until_ms.get(cursor, 0) > self._lease_clock.now_ms

    def is_due(self, cursors: Iterable[Iterable[QueueCursor]]) -> bool:
        """Whether the progress of one of these cursors may have to be written."""
        return bool(self._due) or any(cursor in self.dirty for listed in cursors for cursor in listed)

    def drop(self, cursors: list[QueueCursor]) -> None:
        """Do not write these cursors any more: their topic is gone."""
        for cursor in cursors:
            self.dirty.pop(cursor, None)
            self._not_before_ms.pop(cursor, None)
            self._young_until_ms.pop(cursor, None)
            cursor.group.changed.pop(cursor, None)
        self._due = [cursor for cursor in self._due if cursor not in cursors]


def kept(store: DeliveryLog, key: bytes) -> bytes:
    """Return the value that the log keeps under the key; empty without one."""
    return next((value for raw, value in store.progress(key) if raw == key), b"")

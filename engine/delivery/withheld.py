"""Bound of what all groups of the engine withhold after RETRY: 48 bytes of memory per range."""

from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.settings import DeliverySettings
from engine.delivery.subscription import WakeList

COUNT_MS = 1_000


class WithheldBound:
    """Counts withheld ranges now and then, and narrows the bounds of cursors while there are too many.

    Args:
        wake_list: gets cursors that have room again.

    Attributes:
        is_full: there are; cursors with very many ranges dispatch nothing new.
    """

    def __init__(self, settings: DeliverySettings, wake_list: WakeList) -> None:
        self._settings, self._wake_list = settings, wake_list
        self._cursors: dict[QueueCursor, None] = {}  # that withhold something, or did at the last count
        self._count_at_ms = 0
        self.is_full = False

    def note(self, cursor: QueueCursor) -> None:
        """Count this cursor from now on, if it withholds something."""
        if cursor.in_flight.withheld and cursor not in self._cursors:
            self._cursors[cursor] = None
            self._bound(cursor)

    def step(self, now_ms: int) -> None:
        """Count, if it is time."""
        if now_ms < self._count_at_ms or not self._cursors:
            return
        self._count_at_ms = now_ms + COUNT_MS
        ranges = sum(cursor.in_flight.withheld for cursor in self._cursors)
        was_full, self.is_full = self.is_full, ranges >= self._settings.withheld_ranges_all_max
        for cursor in list(self._cursors):
            self._bound(cursor)
            if not cursor.in_flight.withheld:
                del self._cursors[cursor]
            if was_full and not self.is_full and cursor.blocked:
                self._wake_list.wake(cursor)

    def next_at_ms(self) -> int | None:
        """The next time at which step() has work."""
        return self._count_at_ms if self._cursors else None

    def _bound(self, cursor: QueueCursor) -> None:
        is_narrow = self.is_full and cursor.in_flight.withheld
        cursor.withheld_ranges_max = 0 if is_narrow else self._settings.withheld_ranges_max

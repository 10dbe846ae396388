"""Lease numbers, and a timer heap of the times at which leases expire."""

from collections.abc import Callable

from common.timer_heap import TimerHeap
from engine.delivery.queue_cursor import NO_DUE_MS, QueueCursor

_COUNTER_BITS = 20
_SLACK_MS = 1000


class LeaseClock:
    """Makes lease numbers: wall clock in milliseconds ‖ 20 bits of counter, always growing.

    So a number tells whether its lease is from before this process started, and which messages can have been stored by
    then.

    Args:
        wall_ms: the wall clock; only numbers are made of it, no deadlines.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.wall_ms = wall_ms
        self.now_ms = 0  # the monotonic clock, as last told to delivery
        self.first = self.last = wall_ms() << _COUNTER_BITS
        self._expiries = TimerHeap()

    def next_lease(self) -> int:
        """Return a number that was never used before."""
        self.last = max(self.last + 1, self.wall_ms() << _COUNTER_BITS)
        return self.last

    def is_foreign(self, lease: int) -> bool:
        """Whether another process made the lease: a restart or a fail-over lies between."""
        return not self.first < lease <= self.last

    @staticmethod
    def created_ms(lease: int) -> int:
        """Creation time of the lease by the wall clock; 0 for the unknown lease of a range from before a restart."""
        return lease >> _COUNTER_BITS

    @staticmethod
    def stored_until_ms(lease: int) -> int:
        """A message stored at or after this time cannot belong to the lease.

        It matters when a crash lost the unsynced end of the log: its offsets are then used a second time, and an old
        receipt must not acknowledge the new messages. A second of slack forgives a clock that was set.
        """
        return (lease >> _COUNTER_BITS) + _SLACK_MS

    def due(self, cursor: QueueCursor, due_ms: int) -> None:
        """Note that a lease of the cursor expires at `due_ms`.

        One timer per cursor, for the soonest; it finds the later ones.
        """
        if cursor.due_ms != NO_DUE_MS:
            if cursor.due_ms <= due_ms:
                return
            self._expiries.cancel(cursor.tick, cursor)
        cursor.due_ms = due_ms
        cursor.tick = self._expiries.schedule(due_ms, cursor)

    def expire(self, now_ms: int) -> list[QueueCursor]:
        """Expire due leases; returns the cursors that may dispatch again."""
        woken = []
        for cursor in self._expiries.pop_due(now_ms):
            cursor.due_ms = NO_DUE_MS
            soonest = cursor.in_flight.expire(now_ms)
            if soonest is not None:
                # A cursor with very many leases is searched less often; the delay stays far below a second.
                self.due(cursor, max(soonest, now_ms + len(cursor.in_flight) // 64))
            woken.append(cursor)
        return woken

    def next_at_ms(self) -> int | None:
        """The next time at which expire() has work."""
        return self._expiries.next_at_ms()

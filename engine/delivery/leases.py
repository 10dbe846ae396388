"""Lease numbers, and the moments at which leases range_ out."""

from collections.abc import Callable

from common.timer_heap import TimerHeap
from engine.delivery.queue_cursor import NO_DUE_MS, QueueCursor

_COUNTER_BITS = 20
_SLACK_MS = 1000


class LeaseClock:
    """A lease number is the wall clock's millisecond at its birth ‖ 20 bits of counter, and always grows.

    So a number says of itself whether it was given before this process started, and what can have been stored by then.

    Args:
        wall_ms: the wall clock; only numbers are made of it, no deadline.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.wall_ms = wall_ms
        self.now_ms = 0  # of the clock that never steps back, as far as delivery was told
        self.first = self.last = wall_ms() << _COUNTER_BITS
        self._wheel = TimerHeap()

    def next_lease(self) -> int:
        """A number that was never given before."""
        self.last = max(self.last + 1, self.wall_ms() << _COUNTER_BITS)
        return self.last

    def is_foreign(self, lease: int) -> bool:
        """True when this process did not give the lease: a restart or a fail-over lies between."""
        return not self.first < lease <= self.last

    @staticmethod
    def born_ms(lease: int) -> int:
        """When the lease was given, by the wall clock; 0 for the lease of somebody before a restart."""
        return lease >> _COUNTER_BITS

    @staticmethod
    def stored_until_ms(lease: int) -> int:
        """A message stored at or after this moment cannot belong to the lease.

        It matters when a crash lost the unsynced end of the log: offsets are then used a second time, and an old
        receipt must not acknowledge the new messages. A second of slack forgives a clock that was set.
        """
        return (lease >> _COUNTER_BITS) + _SLACK_MS

    def due(self, cursor: QueueCursor, due_ms: int) -> None:
        """A lease of the cursor ranges out at `due_ms`. One timer a cursor, at the soonest: later ones are found then."""
        if cursor.due_ms != NO_DUE_MS:
            if cursor.due_ms <= due_ms:
                return
            self._wheel.drop(cursor.tick, cursor)
        cursor.due_ms = due_ms
        cursor.tick = self._wheel.add(due_ms, cursor)

    def expire(self, now_ms: int) -> list[QueueCursor]:
        """Let range_ out what is due; returns the cursors that have something to hand out again."""
        woken = []
        for cursor in self._wheel.pop_due(now_ms):
            cursor.due_ms = NO_DUE_MS
            soonest = cursor.in_flight.expire(now_ms)
            if soonest is not None:
                # A cursor with very many leases is looked through less often; the delay stays far below a second.
                self.due(cursor, max(soonest, now_ms + len(cursor.in_flight) // 64))
            woken.append(cursor)
        return woken

    def next_at_ms(self) -> int | None:
        """When expire() has work."""
        return self._wheel.next_at_ms()

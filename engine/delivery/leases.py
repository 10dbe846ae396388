"""Lease numbers, lease time, and a timer heap of the times at which leases expire."""

import struct
from collections.abc import Callable

from common.timer_heap import TimerHeap
from engine.delivery.progress import COUNTER_BITS
from engine.delivery.queue_cursor import NO_DUE_MS, QueueCursor
from engine.log.types import LEASES_KEY

KEY = LEASES_KEY
"""Key of the stored state; see `LeaseClock.stored()`."""
_SLACK_MS = 1000
_UNSTORED_MS = 2000
"""Lease numbers of this time may be missing in the log after a process was killed."""
_REFRESH_MS = 60_000
_SEARCH_MS_MAX = 250
_STORED = struct.Struct("<BBQqq")
_VERSION = 1


class LeaseClock:
    """Makes lease numbers: lease time in milliseconds ‖ 20 bits of counter, always growing.

    *Lease time* is Unix time at the first start of a log. It advances by the monotonic clock while a process runs, and by
    the wall clock between the last stored state and the next start, but never back. So a wall clock that steps while
    the engine runs neither ends a lease nor refuses a receipt. A new master that has followed the one before knows by
    its monotonic clock how old the stored state is, since the wall clocks of two machines differ.

    Args:
        wall_ms: the wall clock.
        stored: what the log keeps under KEY; empty without it.
        since_ms: how long ago that was stored; None: only the wall clock tells.
    """

    def __init__(self, wall_ms: Callable[[], int], stored: bytes = b"", since_ms: int | None = None) -> None:
        self.wall_ms = wall_ms
        self.now_ms = 0  # the monotonic clock, as last told to delivery
        self._start_ms, self.first = _start(stored, wall_ms(), since_ms)
        self._was_used = bool(stored)
        self.last = self.first
        self._base_ms: int | None = None  # lease time less monotonic time
        self._stored_last, self._stored_at_ms = self.first, 0
        self._expiries = TimerHeap()

    def turn(self, now_ms: int) -> None:
        """Note the monotonic time. Lease time begins with the first call."""
        self.now_ms = now_ms
        if self._base_ms is None:
            self._base_ms, self._stored_at_ms = self._start_ms - now_ms, now_ms

    @property
    def base_ms(self) -> int:
        """Lease time less monotonic time."""
        if self._base_ms is None:
            self.turn(self.now_ms)
        return self._base_ms  # type: ignore[return-value]

    @property
    def time_ms(self) -> int:
        """Lease time now."""
        return self.base_ms + self.now_ms

    @property
    def lead_ms(self) -> int:
        """Time by which the last lease number is ahead of lease time."""
        return max(0, (self.last >> COUNTER_BITS) - self.time_ms)

    def next_lease(self) -> int:
        """Return a number that was never used before."""
        self.last = max(self.last + 1, self.time_ms << COUNTER_BITS)
        return self.last

    def start_above(self, number: int) -> None:
        """Use only numbers above this one from now on: the log names it as a lease or as a floor.

        It is above those in use only when the log misses the state that was stored with it. Leases that this process has
        made before then count as those of another one.
        """
        if number > self.last:
            self.first = self.last = number

    def is_foreign(self, lease: int) -> bool:
        """Whether another process may have made the lease: a restart or a fail-over lies between."""
        return not self.first < lease <= self.last

    def created_ms(self, lease: int) -> int:
        """Creation time of the lease by the wall clock; 0 for the unknown lease of a range from before a restart."""
        return min(self._wall_ms_of(lease), self.wall_ms()) if lease else 0

    def stored_until_ms(self, lease: int) -> int:
        """A message stored at or after this time cannot belong to the lease.

        It matters when a crash lost the unsynced end of the log: its offsets are then used a second time, and an old
        receipt must not acknowledge the new messages. A second of slack forgives a clock that was set.
        """
        return self._wall_ms_of(lease) + _SLACK_MS

    def _wall_ms_of(self, lease: int) -> int:
        return (lease >> COUNTER_BITS) + self.wall_ms() - self.time_ms

    # -- the stored state

    @property
    def has_news(self) -> bool:
        """Whether to store the state: leases were made, or a minute has passed while leases run."""
        if self.last != self._stored_last:
            return True
        return self.now_ms - self._stored_at_ms > _REFRESH_MS and self.next_at_ms() is not None

    @property
    def is_used(self) -> bool:
        """Whether this log has or had leases."""
        return self._was_used or self.last != self.first

    def stored(self, *, is_final: bool = False) -> bytes:
        """Return the state to store: version 1 ‖ whether it is final ‖ last number ‖ lease time ‖ wall clock.

        Call `was_stored()` once it is in the log.
        """
        return _STORED.pack(_VERSION, is_final, self.last, self.time_ms, self.wall_ms())

    def was_stored(self) -> None:
        """Note that the log has the state."""
        self._stored_last, self._stored_at_ms = self.last, self.now_ms

    # -- expiry

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

    def forget(self, cursor: QueueCursor) -> None:
        """Forget the cursor's timer: none of its leases runs."""
        if cursor.due_ms != NO_DUE_MS:
            self._expiries.cancel(cursor.tick, cursor)
            cursor.due_ms = NO_DUE_MS

    def expire(self, now_ms: int) -> list[QueueCursor]:
        """Expire due leases; returns the cursors that may dispatch again."""
        woken = []
        for cursor in self._expiries.pop_due(now_ms):
            cursor.due_ms = NO_DUE_MS
            soonest = cursor.in_flight.expire(now_ms)
            if soonest is not None:
                # A cursor with very many ranges is searched less often.
                self.due(cursor, max(soonest, now_ms + min(len(cursor.in_flight) // 64, _SEARCH_MS_MAX)))
            woken.append(cursor)
        return woken

    def next_at_ms(self) -> int | None:
        """The next time at which expire() has work."""
        return self._expiries.next_at_ms()


def _start(stored: bytes, wall_ms: int, since_ms: int | None) -> tuple[int, int]:
    """Return lease time at the start, and the number above which leases begin."""
    if len(stored) != _STORED.size or stored[0] != _VERSION:
        return wall_ms, wall_ms << COUNTER_BITS
    _, is_final, last, time_ms, stored_wall_ms = _STORED.unpack(stored)
    start_ms = time_ms + max(0, wall_ms - stored_wall_ms if since_ms is None else since_ms)
    unstored = 0 if is_final else _UNSTORED_MS << COUNTER_BITS
    named = last | (1 << COUNTER_BITS) - 1  # progress names leases by the millisecond: see `start_above`
    return start_ms, max(named + unstored, start_ms << COUNTER_BITS)

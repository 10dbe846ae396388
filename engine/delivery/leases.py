"""Lease numbers, and the moments at which leases run out."""

from collections.abc import Callable

from common.timer_heap import Wheel
from engine.delivery.queue_cursor import Place

_COUNTER_BITS = 20
_SLACK_MS = 1000


class Clockwork:
    """A lease number is the wall clock's millisecond at its birth ‖ 20 bits of counter, and always grows.

    So a number says of itself whether it was given before this process started, and what can have been stored by then.

    Args:
        wall_ms: the wall clock; only numbers are made of it, no deadline.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.wall_ms = wall_ms
        self.now_ms = 0  # of the clock that never steps back, as far as delivery was told
        self.first = self.last = wall_ms() << _COUNTER_BITS
        self._wheel = Wheel()

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

    def due(self, place: Place, due_ms: int) -> None:
        """A lease of the place runs out at `due_ms`. One timer a place, at the soonest: later ones are found then."""
        if place.due_ms is not None:
            if place.due_ms <= due_ms:
                return
            self._wheel.drop(place.tick, place)
        place.due_ms = due_ms
        place.tick = self._wheel.add(due_ms, place)

    def expire(self, now_ms: int) -> list[Place]:
        """Let run out what is due; returns the places that have something to hand out again."""
        woken = []
        for place in self._wheel.pop_due(now_ms):
            place.due_ms = None
            soonest = place.open.expire(now_ms)
            if soonest is not None:
                # A place with very many leases is looked through less often; the delay stays far below a second.
                self.due(place, max(soonest, now_ms + len(place.open) // 64))
            woken.append(place)
        return woken

    def next_at_ms(self) -> int | None:
        """When expire() has work."""
        return self._wheel.next_at_ms()

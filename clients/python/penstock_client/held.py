"""The deliveries that a run holds: which to handle next, which leases to extend, how many to ask for. No I/O."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from penstock_client.contract import Delivery

LEASE_UNKNOWN_S = 10.0  # assumed when neither the consumer names a lease time nor the proxy tells the group's
LEASE_MIN_S = 1.0  # what a lease has at least; assumed until the first answer


@dataclass
class HeldDelivery:
    """One delivery that is not yet acknowledged."""

    delivery: Delivery
    since_s: float
    until_s: float  # the end of its lease
    is_lost: bool = False  # its extension was refused


class HeldLeases:
    """Deliveries in the order of their pull, at most one of them in its handler. Its user guards it by a lock.

    A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
    with it. With a look each sixth of a lease nothing has less than half of its lease left, unless the extension fails.

    Args:
        extend_max_s: a lease is not extended beyond this time since its delivery: a handler that hangs loses it.
    """

    def __init__(self, extend_max_s: float) -> None:
        self.lease_s = LEASE_MIN_S
        self._extend_max_s = extend_max_s
        self._waiting: deque[HeldDelivery] = deque()
        self._busy: HeldDelivery | None = None
        self._handling_s: float | None = None

    @property
    def look_s(self) -> float:
        """The interval of looks at what has to be extended or acknowledged."""
        return self.lease_s / 6

    def wanted(self, most: int) -> int:
        """The number of messages to ask for: what is handled in a third of a lease, by the handling time so far."""
        if self._handling_s is None:
            return 1
        return max(1, min(most, int(self.lease_s / 3 / max(self._handling_s, 1e-6))))

    def pulled(self, deliveries: Iterable[Delivery], lease_s: float, now_s: float) -> None:
        self.lease_s = lease_s
        self._waiting.extend(HeldDelivery(delivery, now_s, now_s + lease_s) for delivery in deliveries)

    def begin(self, now_s: float) -> Delivery | None:
        """The next delivery to handle. Those whose lease has ended are dropped, as others may have them by now."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.is_lost and first.until_s > now_s:
                self._busy = first
                return first.delivery
        return None

    def end(self, took_s: float) -> None:
        """The handler has returned."""
        self._busy = None
        self._handling_s = took_s if self._handling_s is None else 0.75 * self._handling_s + 0.25 * took_s

    def is_due(self, now_s: float) -> bool:
        """Whether a lease has to be extended now."""
        return bool(self._older(self.lease_s * 2 / 3, now_s))

    def to_extend(self, now_s: float) -> list[HeldDelivery]:
        return self._older(self.lease_s * 5 / 6, now_s)

    def release(self) -> list[Delivery]:
        """Let go of all that no handler has seen."""
        released = [each.delivery for each in self._waiting if not each.is_lost]
        self._waiting.clear()
        return released

    def _older(self, left_s: float, now_s: float) -> list[HeldDelivery]:
        held = [*self._waiting, self._busy] if self._busy else list(self._waiting)
        return [
            each
            for each in held
            if not each.is_lost and each.until_s - now_s < left_s and now_s - each.since_s < self._extend_max_s
        ]

"""The deliveries that a run holds: which to handle next, which leases to extend, how many to ask for. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_client.contract import Delivery

LEASE_UNKNOWN_S = 10.0  # assumed when neither the consumer names a lease time nor the proxy tells the group's
LEASE_MIN_S = 1.0  # what a lease has at least; assumed until the first answer


@dataclass(eq=False)
class HeldDelivery:
    """One delivery that is not yet acknowledged."""

    delivery: Delivery
    since_s: float
    until_s: float  # the end of its lease
    is_lost: bool = False  # its extension was refused

    @property
    def key(self) -> object:
        """Messages without a key have no order: each counts as a key of its own."""
        message = self.delivery.message
        return id(self) if message is None or message.key is None else (message.topic, message.key)


class HeldLeases:
    """Deliveries in the order of their pull, at most `workers` of them in handlers, and of one key at most one. Its user
    guards it by a lock.

    A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
    with it. With a look each sixth of a lease nothing has less than half of its lease left, unless the extension fails.

    Args:
        extend_max_s: a lease is not extended beyond this time since its delivery: a handler that hangs loses it.
    """

    def __init__(self, extend_max_s: float, workers: int = 1) -> None:
        self.lease_s = LEASE_MIN_S
        self._extend_max_s = extend_max_s
        self._workers = workers
        self._waiting: list[HeldDelivery] = []
        self._busy: list[HeldDelivery] = []
        self._handling_s: float | None = None

    @property
    def look_s(self) -> float:
        """The interval of looks at what has to be extended or acknowledged."""
        return self.lease_s / 6

    @property
    def is_idle(self) -> bool:
        """No handler works."""
        return not self._busy

    @property
    def has_room(self) -> bool:
        """A worker is free and nothing waits for it."""
        return self.is_idle or (len(self._busy) < self._workers and not self._waiting)

    def wanted(self, most: int) -> int:
        """The number of messages to ask for: what the free workers handle in a third of a lease, by the time so far."""
        each = 1 if self._handling_s is None else max(1, int(self.lease_s / 3 / max(self._handling_s, 1e-6)))
        return max(1, min(most, each * (self._workers - len(self._busy))))

    def pulled(self, deliveries: Iterable[Delivery], lease_s: float, now_s: float) -> None:
        self.lease_s = lease_s
        self._waiting.extend(HeldDelivery(delivery, now_s, now_s + lease_s) for delivery in deliveries)

    def begin(self, now_s: float) -> HeldDelivery | None:
        """The next delivery to handle; None when there is none, no worker is free or those that wait have keys in
        handlers. Those whose lease has ended are dropped, as others may have them by now.
        """
        if len(self._busy) >= self._workers:
            return None
        self._waiting = [each for each in self._waiting if not each.is_lost and each.until_s > now_s]
        keys = {each.key for each in self._busy}
        begun = next((each for each in self._waiting if each.key not in keys), None)
        if begun is not None:
            self._waiting.remove(begun)
            self._busy.append(begun)
        return begun

    def end(self, held: HeldDelivery, took_s: float) -> None:
        """The handler has returned."""
        self._busy.remove(held)
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
        held = [*self._waiting, *self._busy]
        return [
            each
            for each in held
            if not each.is_lost and each.until_s - now_s < left_s and now_s - each.since_s < self._extend_max_s
        ]

"""One group's deliveries from one queue of a MemoryBroker: the next offset, leases, and messages to redeliver.

Pure: the time is passed in. The rules of leases are those of an engine: an expired lease may still be acknowledged
until its messages are leased again.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from common.memory_broker import MemoryBroker


class Run(NamedTuple):
    """Neighbouring messages that are leased together."""

    first_offset: int
    attempt: int
    stored_at_ms: int
    records: list[bytes]


class _InFlight:
    """A message that was delivered and is not acknowledged. `due_ms` None: it is ready to be delivered again."""

    __slots__ = ("attempt", "due_ms", "lease")

    def __init__(self) -> None:
        self.lease = self.attempt = 0
        self.due_ms: int | None = None


class MemoryCursor:
    """A group in one queue.

    Args:
        offset: the group's first offset.
    """

    def __init__(self, broker: MemoryBroker, topic: str, queue: int, offset: int) -> None:
        self.topic, self.queue = topic, queue
        self._broker = broker
        self._next = offset
        self._in_flight: dict[int, _InFlight] = {}
        self._ready: list[int] = []  # heap of offsets; may contain acknowledged ones
        self._due: list[tuple[int, int]] = []  # heap of (due_ms, offset); may contain outdated due times

    @property
    def lag(self) -> int:
        """Messages that were never delivered."""
        return self._broker.end_offset(self.topic, self.queue) - self._next

    def take_spent(self, attempts_max: int) -> Iterator[tuple[int, bytes]]:
        """Remove the ready messages without attempts left: (offset, record)."""
        for offset in [each for each in self._ready if self._is_spent(each, attempts_max)]:
            del self._in_flight[offset]
            yield offset, self.record(offset)
        self._ready = sorted({each for each in self._ready if each in self._in_flight})

    def lease(self, max_messages: int, max_bytes: int, lease: int, due_ms: int) -> Run | None:
        """Lease the next run within both maxima, but at least one message; None without messages."""
        found: Run | None = None
        size = 0
        while len(found.records if found else ()) < max_messages:
            following = self._following()
            if following is None:
                break
            offset, attempt, stored_at_ms, record = following
            size += len(record)
            if found is None:
                found = Run(offset, attempt, stored_at_ms, [])
            elif size > max_bytes or (offset - len(found.records), attempt, stored_at_ms) != found[:3]:
                break
            self._mark(offset, attempt, lease, due_ms)
            found.records.append(record)
        return found

    def holds(self, first: int, end: int, lease: int) -> bool:
        """Whether all of these messages belong to the lease and are not acknowledged."""
        return all((each := self._in_flight.get(at)) is not None and each.lease == lease for at in range(first, end))

    def settle(self, first: int, end: int) -> None:
        """Acknowledge the messages."""
        for offset in range(first, end):
            self._in_flight.pop(offset, None)

    def hold(self, first: int, end: int, due_ms: int) -> None:
        """Make the messages due for redelivery at `due_ms`, unless they are acknowledged before."""
        for offset in range(first, end):
            self._set_due(self._in_flight[offset], offset, due_ms)

    def release(self, first: int, end: int) -> None:
        """Make the messages ready, without the attempt: no client has seen them."""
        for offset in range(first, end):
            each = self._in_flight[offset]
            each.lease, each.attempt, each.due_ms = 0, each.attempt - 1, None
            heappush(self._ready, offset)

    def expire(self, now_ms: int) -> bool:
        """Make due messages ready; return whether any message is ready."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, offset = heappop(self._due)
            each = self._in_flight.get(offset)
            if each is not None and each.due_ms == due_ms:
                each.due_ms = None
                heappush(self._ready, offset)
        return bool(self._ready)

    def attempt(self, offset: int) -> int:
        """Number of deliveries of the message in flight."""
        return self._in_flight[offset].attempt

    def record(self, offset: int) -> bytes:
        """The stored record at an offset."""
        return self._broker.read(self.topic, self.queue, offset, 1)[0][2]

    def _is_spent(self, offset: int, attempts_max: int) -> bool:
        each = self._in_flight.get(offset)
        return each is not None and each.due_ms is None and each.attempt >= attempts_max

    def _following(self) -> tuple[int, int, int, bytes] | None:
        """(offset, attempt to come, stored_at_ms, record) of the next message, without leasing it."""
        while self._ready:
            offset = self._ready[0]
            each = self._in_flight.get(offset)
            if each is not None and each.due_ms is None:
                ((_, stored_at_ms, record),) = self._broker.read(self.topic, self.queue, offset, 1)
                return offset, each.attempt + 1, stored_at_ms, record
            heappop(self._ready)
        for offset, stored_at_ms, record in self._broker.read(self.topic, self.queue, self._next, 1):
            return offset, 1, stored_at_ms, record
        return None

    def _mark(self, offset: int, attempt: int, lease: int, due_ms: int) -> None:
        if self._ready and self._ready[0] == offset:
            heappop(self._ready)
        else:
            self._next = offset + 1
        each = self._in_flight.setdefault(offset, _InFlight())
        each.lease, each.attempt = lease, attempt
        self._set_due(each, offset, due_ms)

    def _set_due(self, each: _InFlight, offset: int, due_ms: int) -> None:
        each.due_ms = due_ms
        heappush(self._due, (due_ms, offset))

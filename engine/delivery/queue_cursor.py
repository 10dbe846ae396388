"""One queue as one group sees it: where handing out goes on, who holds what, what is done.

Pure: offsets and moments in, decisions out. Moments are milliseconds of a clock that never steps back.
"""

from collections.abc import Iterable
from typing import Any

from common.dead_letters import is_dead_letter_topic
from engine.delivery.in_flight import InFlightRanges, InFlightRange
from engine.delivery.intervals import IntervalSet
from engine.delivery.key_order import KeyOrder
from engine.delivery.policy import ATTEMPTS_ENDLESS, KEY, NONE, PARK, QUEUE, SKIP, STOP, GroupPolicy
from engine.delivery.progress import Progress, encode
from engine.delivery.settings import DeliverySettings

OFFSET_MAX = (1 << 63) - 1


class QueueCursor:
    """State of (group, topic, queue).

    Invariants: every range_ lies below `next_offset`; `early` lies above it; an offset below `next_offset` in no range_ is
    acknowledged (or was deleted by retention).
    """

    __slots__ = (
        "blocked", "credit", "due_ms", "early", "end_seen", "filter", "floor", "group", "is_dead_letters", "is_sorted", "key",
        "keys", "next_offset", "in_flight", "order", "queue", "settings", "sorted_until", "stop_at", "subscriptions", "tick",
        "topic_hash", "topic_id", "topic_name",
    )  # fmt: skip

    def __init__(self, topic_name: str, topic_id: int, topic_hash: int, queue: int, settings: DeliverySettings) -> None:
        self.topic_name, self.topic_id, self.topic_hash, self.queue = topic_name, topic_id, topic_hash, queue
        self.settings = settings
        self.key = b""
        self.group: Any = None  # whose cursor it is
        self.filter: Any = None  # which messages the group takes; None: all
        self.is_dead_letters = is_dead_letter_topic(topic_name)
        self.order = NONE
        self.keys: KeyOrder | None = None  # in order by key
        self.is_sorted, self.sorted_until = True, 0  # whether `keys` knows all that is open, and up to where it does
        self.stop_at = 0  # a message that was given out so often stops the queue; 0: none does
        self.next_offset = 0
        self.end_seen = 0  # the log's end offset when it was looked at last; it only grows
        self.floor = 0  # leases below it were given before an operator moved the group
        self.in_flight = InFlightRanges()
        self.early = IntervalSet()
        self.blocked = False  # there is more to hand out, but a bound forbids it
        self.credit = 0  # bytes that this queue may still give in its turn
        self.due_ms: int | None = None  # a lower bound of when a lease ranges out
        self.tick = 0
        self.subscriptions: list = []

    @property
    def contiguous(self) -> int:
        """Everything below is acknowledged."""
        return self.in_flight.firsts[0] if self.in_flight.firsts else self.next_offset

    def see(self, first_offset: int, end_offset: int) -> None:
        """The log can read first_offset..end_offset now; what lies below is gone by retention."""
        self.end_seen = end_offset
        if first_offset > self.contiguous:
            self._trim(first_offset)

    def plan(self, messages_max: int) -> tuple[int, int, int] | None:
        """What would be handed out next: (first, end at most, attempt so far); None when nothing seen may be."""
        if self.stop_at:
            stuck = self.in_flight.first_spent(self.stop_at)
            if stuck is not None:
                return (stuck.first, min(stuck.end, stuck.first + messages_max), stuck.attempt) if stuck.ready else None
        if self.order == QUEUE and not self.in_flight.all_ready():
            return None
        again = self.in_flight.next_ready(messages_max)
        if again is not None:
            return again
        room = min(self.settings.in_flight_max - self.in_flight.messages, messages_max)
        if self.keys is not None:
            room = min(room, self.settings.waiting_max - self.keys.waiting)  # for all of them may have to wait
        if room <= 0 or len(self.in_flight) >= self.settings.ranges_max:
            return None
        if self.early:
            self.next_offset = self.early.skip(self.next_offset)
        end = min(self.end_seen, self.next_offset + room, self.early.first() or OFFSET_MAX)
        return (self.next_offset, end, 0) if end > self.next_offset else None

    def lease(self, first: int, end: int, lease: int, due_ms: int) -> int:
        """Give first..end, the start of what plan() returned, to a lease until `due_ms`; returns the attempt."""
        if first != self.next_offset:
            return self.in_flight.release(first, end, lease, due_ms)
        self.in_flight.append(InFlightRange(first, end, lease, 1, due_ms, first_lease=lease))
        self.next_offset = end
        return 1

    def leave_out(self, first: int, end: int, lease: int) -> None:
        """Count first..end, the start of what plan() returned, as done although nobody was given it."""
        if first == self.next_offset:
            self.next_offset = end
        else:
            self.in_flight.release(first, end, lease, 0)
            self.settle(first, end, lease, False)

    def wait(self, offset: int) -> None:
        """Pass the next message over: it waits for an earlier one of its key."""
        self.in_flight.wait(offset)
        self.next_offset = offset + 1

    def settle(self, first: int, end: int, lease: int, foreign: bool) -> bool:
        """Count first..end as done; False when a part of it is in other hands. What can count counts all the same.

        Args:
            foreign: the lease was given before a restart, and its messages were stored by then.
        """
        if lease < self.floor:
            return False
        if self.keys is None:
            whole = self.in_flight.settle(first, end, lease, foreign)
        else:
            whole, taken = self.in_flight.take_out(first, end, lease, foreign)
            for start, stop in taken:
                self._done(range(start, stop))
        if end > self.next_offset:
            if not foreign:
                return False
            self.early.add(max(first, self.next_offset), end)
            if first <= self.next_offset:
                self.next_offset = self.early.skip(self.next_offset)
        return whole

    def hold(self, first: int, end: int, lease: int, foreign: bool, due_ms: int, now_ms: int) -> int:
        """Keep from everybody until `due_ms` what this lease holds of first..end, which serves both RETRY and EXTEND;
        returns how many messages that are."""
        if lease < self.floor:
            return 0
        return self.in_flight.hold(first, end, lease, foreign, due_ms, now_ms)

    def claim(self, first: int, end: int, lease: int, foreign: bool, attempt_min: int, claimer: int) -> list[InFlightRange]:
        """See InFlightRanges.claim()."""
        if lease < self.floor:
            return []
        return self.in_flight.claim(first, end, lease, foreign, attempt_min, claimer)

    def pass_over(self, end: int) -> None:
        """Count everything below `end` that was never handed out as handed out and come back: who comes next gets it."""
        while self.next_offset < end:
            if self.early:
                self.next_offset = self.early.skip(self.next_offset)
            stop = min(end, self.early.first() or OFFSET_MAX)
            if stop > self.next_offset:
                self.in_flight.append(InFlightRange(self.next_offset, stop, 0, 0, 0, ready=True))
                self.next_offset = stop

    @property
    def attempts_max(self) -> int:
        """After how many deliveries a message is dead, as things are. Dead letters are not buried again."""
        policy = self.group.policy
        if self.is_dead_letters:
            return ATTEMPTS_ENDLESS
        is_full = self.keys is not None and self.keys.waiting >= self.settings.waiting_max
        if policy.on_failure == SKIP or (policy.on_failure == PARK and is_full):
            return policy.attempts_max
        return ATTEMPTS_ENDLESS

    def follow(self, policy: GroupPolicy) -> None:
        """Hand out in the policy's order from now on. Dead letters have none."""
        order = NONE if self.is_dead_letters else policy.order
        self.stop_at = policy.attempts_max if order == KEY and policy.on_failure == STOP else 0
        if order == self.order:
            return
        self.order = order
        self.in_flight.end_waiting()
        self._forget_keys()

    def _forget_keys(self) -> None:
        self.keys = KeyOrder() if self.order == KEY else None
        self.is_sorted, self.sorted_until = self.keys is None or not self.in_flight, 0

    def _done(self, offsets: Iterable[int]) -> None:
        """These messages are open no more: it is the turn of those that waited for them."""
        assert self.keys is not None
        for offset in offsets:
            following = self.keys.done(offset)
            if following >= 0:
                self.in_flight.make_ready(following)
                self.blocked = True

    def move(self, offset: int, floor: int) -> None:
        """Go on handing out at `offset`, forgetting who holds what; receipts of leases below `floor` settle nothing."""
        self.in_flight.clear()
        self.early.clear()
        self._forget_keys()
        self.next_offset, self.floor = offset, floor

    def progress(self) -> Progress:
        """What a restart needs."""
        ranges = [(range_.first, range_.end, range_.attempt) for range_ in self.in_flight.ranges]
        at = self.next_offset
        for first, end in self.early:
            ranges.append((at, first, 0))
            at = end
        return Progress(self.floor, at, ranges)

    def encoded_progress(self) -> bytes:
        """The same as it is kept."""
        return encode(self.progress())

    def resume(self, progress: Progress) -> None:
        """Take up what was kept: what was out is ready to be handed out again at once."""
        self.floor, self.next_offset = progress.floor, progress.next_offset
        for first, end, attempt in progress.ranges:
            self.in_flight.append(InFlightRange(first, end, 0, attempt, 0, ready=True))
        self._forget_keys()

    def _trim(self, first_offset: int) -> None:
        self.in_flight.trim(first_offset)
        if self.keys is not None:
            self._done([offset for offset in self.keys.offsets() if offset < first_offset])
        self.next_offset = self.early.skip(max(self.next_offset, first_offset))

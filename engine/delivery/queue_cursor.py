# cython: annotation_typing=False
"""Cursor of one group in one queue: dispatch offset, messages in flight, acknowledged messages.

Pure: offsets and times in, decisions out. Times are milliseconds of a monotonic clock.
"""

from typing import Any

from common.dead_letters import is_dead_letter_topic
from engine.delivery.in_flight import InFlightRanges
from engine.delivery.intervals import IntervalSet
from engine.delivery.key_order import KeyOrder
from engine.delivery.policy import ATTEMPTS_ENDLESS, KEY, NONE, PARK, QUEUE, SKIP, STOP, GroupPolicy
from engine.delivery.progress import Progress, StoredRange, encode
from engine.delivery.settings import DeliverySettings

OFFSET_MAX = (1 << 63) - 1
AGAIN_MAX = 1_024
"""Messages of which a pull takes a half at the second attempt, a quarter at the third."""
NO_DUE_MS = -1


class QueueCursor:
    """State of (group, topic, queue).

    Invariants: all ranges in flight lie below `next_offset`; `early` lies above it; an offset below `next_offset` in no
    range is acknowledged (or was deleted by retention).

    Args:
        in_flight: an empty collection of this cursor's form.
        new_key_order: makes a KeyOrder of this cursor's form.
    """

    __slots__ = (
        "alone_at", "blocked", "by_key", "changed", "credit", "due_ms", "early", "early_firsts", "end_seen", "filter", "floor",
        "group", "in_flight",
        "in_flight_max", "is_dead_letters", "is_sorted", "key", "keys", "moves", "new_key_order", "next_offset", "one_range", "order",
        "queue", "ranges_max", "sorted_until", "stop_at", "subscriptions", "tick", "topic_hash", "topic_id", "topic_name",
        "waiting_max", "withheld_max", "withheld_ranges_max",
    )  # fmt: skip

    def __init__(
        self,
        topic_name: str,
        topic_id: int,
        topic_hash: int,
        queue: int,
        settings: DeliverySettings,
        in_flight: InFlightRanges,
        new_key_order: type[KeyOrder],
    ) -> None:
        self.topic_name, self.topic_id, self.topic_hash, self.queue = topic_name, topic_id, topic_hash, queue
        self.in_flight_max, self.ranges_max = settings.in_flight_max, settings.ranges_max
        self.waiting_max, self.withheld_max = settings.waiting_max, settings.withheld_max
        self.withheld_ranges_max = settings.withheld_ranges_max
        self.key = b""  # of the stored progress
        self.group: Any = None
        self.filter: Any = None  # selects the group's messages; None: all
        self.is_dead_letters = is_dead_letter_topic(topic_name)
        self.order = NONE
        self.by_key = self.one_range = False  # which order it is
        self.new_key_order = new_key_order
        self.keys: KeyOrder | None = None  # with order by key
        self.moves: Any = None  # keys that move from other queues, see key_moves.py
        self.is_sorted, self.sorted_until = True, 0  # whether `keys` has all open messages, else those below an offset
        self.alone_at = ATTEMPTS_ENDLESS  # attempt at which a pull takes one message: the last one
        self.stop_at = 0  # number of failed attempts at which a message stops the queue; 0: none
        self.next_offset = 0
        self.end_seen = 0  # the log's end offset at the last look; it only grows
        self.floor = 0  # leases below it are older than an operator's reset
        self.in_flight = in_flight
        self.early = IntervalSet()
        self.early_firsts = self.early.firsts
        self.changed: Any = None  # of the group: its cursors whose progress is due before clients see what has changed
        self.blocked = False  # there are more messages, but a bound forbids to dispatch them
        self.credit = 0  # bytes that this queue may still dispatch in its turn
        self.due_ms = NO_DUE_MS  # a lower bound of the next lease's end
        self.tick: Any = 0
        self.subscriptions: list = []

    @property
    def contiguous(self) -> int:
        """Everything below is acknowledged."""
        return self.in_flight.first_offset(self.next_offset)

    @property
    def is_at_bound(self) -> bool:
        """Whether a bound of its open messages forbids new ones."""
        return self.room() <= 0

    def room(self) -> int:
        """Number of messages that may be dispatched for the first time; withheld ones are not in flight."""
        ranges, withheld = self.in_flight.count, self.in_flight.withheld
        if ranges - withheld >= self.ranges_max or (ranges >= self.ranges_max and withheld >= self.withheld_ranges_max):
            return 0
        room = self.in_flight_max - self.in_flight.messages
        if self.keys is not None:
            return min(room, self.waiting_max - self.keys.waiting)  # for all of them may have to wait
        return room + self.in_flight.withheld_messages if self.in_flight.withheld_messages < self.withheld_max else 0

    def see(self, first_offset: int, end_offset: int) -> None:
        """Note the log's readable range first_offset..end_offset; retention has deleted what lies below."""
        self.end_seen = end_offset
        if first_offset > self.in_flight.first_offset(self.next_offset):
            self.in_flight.trim(first_offset)
            if self.keys is not None:
                for offset in self.keys.offsets():
                    if offset < first_offset:
                        self.finish(offset)
            self.next_offset = self.early.skip(max(self.next_offset, first_offset))

    def plan(self, messages_max: int) -> tuple[int, int]:
        """Return the range to dispatch next: its first offset, and the end that it may reach.

        Empty when there is none.
        """
        if self.stop_at:
            planned = self.in_flight.next_spent(self.stop_at, messages_max)
            if planned[0] >= 0:
                return planned
        if self.one_range and not self.in_flight.all_ready():
            return 0, 0
        planned = self.in_flight.next_ready(messages_max)
        if planned[1] > planned[0]:
            return planned
        room = min(self.room(), messages_max)
        if room <= 0:
            return 0, 0
        end = min(self.end_seen, self.next_offset + room)
        if self.early_firsts:
            self.next_offset = self.early.skip(self.next_offset)
            end = min(self.end_seen, self.next_offset + room, self.first_early())
        return self.next_offset, max(end, self.next_offset)

    def pull_max(self, attempt: int, wanted: int) -> int:
        """The largest number of messages of a pull that takes one for this attempt.

        A message that ends its consumer fails all that were pulled with it: half as many each time, the last time alone.
        """
        if attempt <= 1:
            return wanted
        return 1 if attempt >= self.alone_at else max(1, min(wanted, AGAIN_MAX) >> min(attempt - 1, 31))

    def pull_max_at(self, first: int, wanted: int) -> int:
        """As pull_max(), for the next attempt of the range in flight that begins at `first`."""
        return self.pull_max(self.in_flight.attempt_at(first) + 1, wanted)

    def next_to_give(self) -> int:
        """Offset of the message that it would dispatch now, of those seen; -1 when there is none."""
        first, end = self.plan(1)
        return first if end > first else -1

    def first_early(self) -> int:
        """The lowest offset that was acknowledged early, OFFSET_MAX without one."""
        return self.early_firsts[0] if self.early_firsts else OFFSET_MAX

    def note_change(self) -> None:
        """With an order, what clients see has to be in the log before they see it."""
        if self.order and self.changed is not None:
            self.changed[self] = None

    def lease(self, first: int, end: int, lease: int, due_ms: int) -> int:
        """Lease first..end, the start of the range from plan(), until `due_ms`; returns the attempt."""
        self.note_change()
        if first != self.next_offset:
            return self.in_flight.lease_again(first, end, lease, due_ms)
        self.in_flight.add(first, end, lease, 1, due_ms, False)
        self.next_offset = end
        return 1

    def leave_out(self, first: int, end: int, lease: int) -> None:
        """Count first..end, the start of the range from plan(), as done without a delivery."""
        if first == self.next_offset:
            self.next_offset = end
        else:
            self.in_flight.lease_again(first, end, lease, 0)
            self.settle(first, end, lease, False)

    def wait(self, offset: int) -> None:
        """Pass over the next message: it waits for an earlier one of its key."""
        self.in_flight.wait(offset)
        self.next_offset = offset + 1

    def settle(self, first: int, end: int, lease: int, foreign: bool) -> bool:
        """Count first..end as done, as far as the lease holds it; False when another lease holds a part of it.

        Args:
            foreign: the lease is from before a restart, and its messages were stored by then.
        """
        if lease < self.floor:
            return False
        self.note_change()
        if self.keys is None:
            whole = self.in_flight.settle(first, end, lease, foreign)
        else:
            whole, settled = self.in_flight.settle_and_list(first, end, lease, foreign)
            for start, stop in settled:
                for offset in range(start, stop):
                    self.finish(offset)
        if end > self.next_offset:
            if not foreign:
                return False
            self.early.add(max(first, self.next_offset), end)
            if first <= self.next_offset:
                self.next_offset = self.early.skip(self.next_offset)
        return whole

    def hold(self, first: int, end: int, lease: int, foreign: bool, due_ms: int, now_ms: int, withheld: bool) -> int:
        """Keep the lease's part of first..end until `due_ms`; returns its number of messages.

        Args:
            withheld: for RETRY; else for EXTEND.
        """
        if lease < self.floor:
            return 0
        self.note_change()
        return self.in_flight.hold(first, end, lease, foreign, due_ms, now_ms, withheld)

    def release(self, first: int, end: int, lease: int, foreign: bool) -> int:
        """See InFlightRanges.release()."""
        if lease < self.floor:
            return 0
        return self.in_flight.release(first, end, lease, foreign)

    def claim(self, first: int, end: int, lease: int, foreign: bool, attempt_min: int, claimer: int) -> list:
        """See InFlightRanges.claim()."""
        if lease < self.floor:
            return []
        return self.in_flight.claim(first, end, lease, foreign, attempt_min, claimer)

    def pass_over(self, end: int) -> None:
        """Count everything below `end` that was never dispatched as expired: the next pull may get it."""
        while self.next_offset < end:
            if self.early_firsts:
                self.next_offset = self.early.skip(self.next_offset)
            stop = min(end, self.first_early())
            if stop > self.next_offset:
                self.in_flight.add(self.next_offset, stop, 0, 0, 0, True)
                self.next_offset = stop

    @property
    def attempts_max(self) -> int:
        """Effective maximum number of attempts. Dead letters have none."""
        policy = self.group.policy
        if self.is_dead_letters:
            return ATTEMPTS_ENDLESS
        is_full = self.keys is not None and self.keys.waiting >= self.waiting_max
        if policy.on_failure == SKIP or (policy.on_failure == PARK and is_full):
            return policy.attempts_max
        return ATTEMPTS_ENDLESS

    def follow(self, policy: GroupPolicy) -> None:
        """Dispatch in the policy's order from now on. Dead letters have none."""
        order = NONE if self.is_dead_letters else policy.order
        self.alone_at = ATTEMPTS_ENDLESS if self.is_dead_letters else policy.attempts_max
        self.stop_at = policy.attempts_max if order == KEY and policy.on_failure == STOP else 0
        if order == self.order:
            return
        self.order, self.by_key, self.one_range = order, order == KEY, order == QUEUE
        self.in_flight.end_waiting()
        self.forget_keys()

    def forget_keys(self) -> None:
        """Drop the known keys of open messages; they are collected again."""
        self.keys = self.new_key_order() if self.by_key else None
        self.set_moves(self.moves)
        self.is_sorted, self.sorted_until = self.keys is None or self.in_flight.count == 0, 0

    def set_moves(self, moves: Any) -> None:
        """Have keys that move from other queues wait for those; None: no key moves any more."""
        self.moves = moves
        if self.keys is not None:
            self.keys.moves = moves

    def end_hold(self, offset: int) -> bool:
        """A message waits no more for another queue; returns whether a message of its key may be dispatched."""
        following = -1 if self.keys is None else self.keys.end_hold(offset)
        if following >= 0:
            self.in_flight.make_ready(following)
            self.blocked = True
        return following >= 0

    def finish(self, offset: int) -> None:
        """Remove a message that is no longer open; the next message of its key may be dispatched."""
        following = self.keys.done(offset)  # type: ignore[union-attr]
        if following >= 0:
            self.in_flight.make_ready(following)
            self.blocked = True

    def move(self, offset: int, floor: int) -> None:
        """Continue at `offset` and forget all leases; receipts of leases below `floor` settle nothing."""
        self.in_flight.clear()
        self.early.clear()
        self.forget_keys()
        self.next_offset, self.floor = offset, floor

    def is_certain(self, first: int, end: int, lease: int) -> bool:
        """Whether the log says that another process gave first..end to this lease, as far as they are open."""
        return end <= self.next_offset and self.in_flight.is_certain(first, end, lease)

    def progress(self, now_ms: int, time_ms: int, lead_ms: int, young_ms: int) -> Progress:
        """Return the state that a restart needs.

        Args:
            time_ms: lease time at the monotonic time `now_ms`.
            lead_ms: time by which lease numbers are ahead of it.
            young_ms: see InFlightRange.stored().
        """
        ranges = [each.stored(now_ms, young_ms) for each in self.in_flight.ranges]
        at = self.next_offset
        for first, end in self.early:
            ranges.append(StoredRange(at, first, 0))
            at = end
        return Progress(self.floor, at, ranges, time_ms, lead_ms)

    def encoded_progress(self, now_ms: int, time_ms: int, lead_ms: int, young_ms: int) -> bytes:
        """Return the stored form of progress()."""
        if self.early_firsts:
            return encode(self.progress(now_ms, time_ms, lead_ms, young_ms))
        return self.in_flight.encoded_progress(self.floor, self.next_offset, now_ms, time_ms, lead_ms, young_ms)

    def resume(self, stored: bytes, base_ms: int) -> int:
        """Load stored progress. What was leased stays leased until then; the rest in flight is ready at once.

        Args:
            base_ms: lease time less monotonic time.
        Returns:
            The highest lease number that it names.
        """
        self.floor, self.next_offset, top_lease = self.in_flight.load(stored, base_ms)
        self.forget_keys()
        return top_lease

"""Messages in flight: ranges of one queue that were dispatched to one group and not acknowledged, one per lease.

Everything below the dispatch offset that is in no range is acknowledged, so the acknowledged ranges are the gaps and
need no set of their own.

Invariant: ranges are disjoint, none is empty, and they are ordered by offset; `firsts[i] == ranges[i].first`.
"""

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import islice

from engine.delivery.in_flight_range import NEVER, InFlightRange
from engine.delivery.progress import DUE_STEP_BITS, Progress, StoredRange, decode, encode


class InFlightRanges:
    """The ranges of one queue of one group. The cost of a call follows the ranges that it touches.

    Attributes:
        messages, count: of all ranges. withheld_messages, withheld: of the withheld ones.
    """

    __slots__ = ("_ready_firsts", "attempt_top", "firsts", "messages", "ranges", "withheld", "withheld_messages")

    def __init__(self) -> None:
        self.attempt_top = 0  # upper bound of all attempts: most searches for ranges without further attempts stop here
        self.firsts: list[int] = []
        self.ranges: list[InFlightRange] = []
        self.messages = self.withheld = self.withheld_messages = 0
        self._ready_firsts: list[int] = []  # heap; entries without a ready range are skipped

    def __len__(self) -> int:
        return len(self.ranges)

    @property
    def count(self) -> int:
        """Number of ranges."""
        return len(self.ranges)

    def first_offset(self, otherwise: int) -> int:
        """The lowest offset in flight; `otherwise` without any."""
        return self.firsts[0] if self.firsts else otherwise

    def add(self, first: int, end: int, lease: int, attempt: int, due_ms: int, ready: bool) -> None:
        """Add a range after all others; its lease is its first one."""
        self.firsts.append(first)
        self.ranges.append(InFlightRange(first, end, lease, attempt, due_ms, ready, lease))
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        if ready:
            heappush(self._ready_firsts, first)

    def settle(self, first: int, end: int, lease: int, foreign: bool) -> bool:
        """Remove what `lease` holds of first..end, as acknowledged; False when another lease holds a part of it.

        Args:
            foreign: the lease is from before a restart, so it may also settle what was not leased since.
        """
        at = max(bisect_right(self.firsts, first) - 1, 0)
        whole = True
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end <= first:
                at += 1
            elif range_.is_of(lease, foreign):
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                self._delete(at, at + 1)
            else:
                whole = False
                at += 1
        return whole

    def settle_and_list(self, first: int, end: int, lease: int, foreign: bool) -> tuple[bool, list[tuple[int, int]]]:
        """As settle(); returns the removed ranges, too."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        settled = []
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and range_.is_of(lease, foreign):
                settled.append((max(first, range_.first), min(end, range_.end)))
            at += 1
        return self.settle(first, end, lease, foreign), settled

    def wait(self, offset: int) -> None:
        """Add the message after all others as one that waits for another message and not for a due time."""
        if self.ranges:
            last = self.ranges[-1]
            if last.end == offset and last.is_waiting:
                last.end += 1
                self.messages += 1
                return
        self.add(offset, offset + 1, 0, 0, NEVER, False)

    def make_waiting(self, offset: int) -> None:
        """Turn an open message into a waiting one."""
        at = self._split(bisect_right(self.firsts, offset) - 1, offset, offset + 1)
        range_ = self.ranges[at]
        range_.give_to(0)
        range_.due_ms, range_.ready = NEVER, False
        self._withhold(range_, False)

    def make_ready(self, offset: int) -> None:
        """If the message waits, allow its dispatch."""
        at = max(bisect_right(self.firsts, offset) - 1, 0)
        range_ = self.ranges[at] if at < len(self.ranges) else None
        if range_ and range_.first <= offset < range_.end and range_.is_waiting:
            self.ranges[self._split(at, offset, offset + 1)].ready = True
            heappush(self._ready_firsts, offset)

    def end_waiting(self) -> None:
        """Allow the dispatch of all waiting messages."""
        for range_ in self.ranges:
            if range_.is_waiting:
                range_.ready = True
                heappush(self._ready_firsts, range_.first)

    def all_ready(self) -> bool:
        """Whether no message is leased."""
        return all(range_.ready for range_ in self.ranges)

    def next_spent(self, attempts_max: int, messages_max: int) -> tuple[int, int]:
        """Find the first range whose attempt number `attempts_max`, or a later one, has failed.

        Returns: (first, end) of its part that may be dispatched, equal while it is leased; (-1, -1) without such a
        range.
        """
        if self.attempt_top < attempts_max:
            return -1, -1
        self.attempt_top = max((range_.attempt for range_ in self.ranges), default=0)
        for range_ in self.ranges:
            if range_.attempt >= attempts_max + (not range_.ready):
                end = min(range_.end, range_.first + messages_max) if range_.ready else range_.first
                return range_.first, end
        return -1, -1

    def hold(
        self, first: int, end: int, lease: int, foreign: bool, due_ms: int, now_ms: int, withheld: bool = False
    ) -> int:
        """Keep what `lease` holds of first..end leased, or withheld, until `due_ms`; returns its number of messages."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        held = 0
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and range_.is_of(lease, foreign):
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                range_ = self.ranges[at]
                range_.give_to(lease)
                range_.due_ms, range_.ready = due_ms, due_ms <= now_ms
                held += range_.end - range_.first
                self._withhold(range_, withheld and not range_.ready)
                if range_.ready:
                    heappush(self._ready_firsts, range_.first)
                elif withheld:
                    at = self._join(at)
            at += 1
        return held

    def release(self, first: int, end: int, lease: int, foreign: bool) -> int:
        """Make what `lease` holds of first..end ready, without the attempt: no client has seen it. Returns its number.

        It has no holder from then on, so that a second release takes no second attempt back.
        """
        at = max(bisect_right(self.firsts, first) - 1, 0)
        released = 0
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and range_.lease and range_.is_of(lease, foreign) and range_.attempt:
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                range_ = self.ranges[at]
                range_.give_to(0)
                range_.attempt, range_.ready = range_.attempt - 1, True
                self._withhold(range_, False)
                released += range_.end - range_.first
                heappush(self._ready_firsts, range_.first)
            at += 1
        return released

    def claim(
        self, first: int, end: int, lease: int, foreign: bool, attempt_min: int, claimer: int
    ) -> list[InFlightRange]:
        """Move messages of `lease` in first..end, with at least `attempt_min` attempts, to the lease `claimer`.

        `claimer` never expires. Returns copies of the claimed ranges as they were before.
        """
        if self.attempt_top < attempt_min:
            return []
        at = max(bisect_right(self.firsts, first) - 1, 0)
        claimed = []
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and range_.is_of(lease, foreign) and range_.attempt >= attempt_min:
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                claimed.append(self._give_to(at, claimer))
            at += 1
        return claimed

    def claim_ready(self, first: int, end: int, claimer: int) -> list[InFlightRange]:
        """As claim(), for the ready part of first..end."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        claimed = []
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and range_.ready:
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                claimed.append(self._give_to(at, claimer))
            at += 1
        return claimed

    def claim_spent(self, attempts_max: int, claimer: int) -> list[InFlightRange]:
        """As claim(), for each range whose last attempt has failed: ready, with `attempts_max` attempts or more."""
        if self.attempt_top < attempts_max:
            return []
        self.attempt_top = max((range_.attempt for range_ in self.ranges), default=0)
        spent = [at for at, range_ in enumerate(self.ranges) if range_.ready and range_.attempt >= attempts_max]
        return [self._give_to(at, claimer) for at in spent]

    def claim_withheld(self, attempts_max: int, claimer: int, ranges_max: int) -> list[InFlightRange]:
        """As claim(), for at most `ranges_max` withheld ranges with `attempts_max` attempts or more."""
        if not self.withheld or self.attempt_top < attempts_max:
            return []
        spent = (at for at, each in enumerate(self.ranges) if each.is_withheld and each.attempt >= attempts_max)
        return [self._give_to(at, claimer) for at in islice(spent, ranges_max)]

    def postpone_spent(self, attempts_max: int, due_ms: int) -> bool:
        """Give the holders of ready ranges without a further attempt time until `due_ms`; False when there are none."""
        spent = [range_ for range_ in self.ranges if range_.ready and range_.attempt >= attempts_max]
        for range_ in spent:
            range_.ready, range_.due_ms = False, due_ms
        return bool(spent)

    def attempt_of(self, first: int, end: int, lease: int, foreign: bool) -> int:
        """Attempts of the first messages of first..end that `lease` holds; 0 when it holds none."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and range_.is_of(lease, foreign):
                return range_.attempt
            at += 1
        return 0

    def attempt_at(self, first: int) -> int:
        """Attempts of the range that begins at `first`."""
        return self.ranges[bisect_right(self.firsts, first) - 1].attempt

    def expire(self, now_ms: int) -> int | None:
        """Make due ranges ready; returns the next due time, None without one."""
        soonest = None
        for range_ in self.ranges:
            if range_.ready:
                continue
            if range_.due_ms <= now_ms:
                range_.ready = True
                self._withhold(range_, False)
                heappush(self._ready_firsts, range_.first)
            elif range_.due_ms != NEVER and (soonest is None or range_.due_ms < soonest):
                soonest = range_.due_ms
        return soonest

    def next_ready(self, messages_max: int) -> tuple[int, int]:
        """Return (first, end) of the first messages that may be dispatched again; equal when there are none.

        Adjacent ranges of one attempt are offered as one, so that single leases that expired side by side do not stay
        single for ever.
        """
        while self._ready_firsts:
            first = self._ready_firsts[0]
            at = bisect_right(self.firsts, first) - 1
            if at >= 0 and self.firsts[at] == first and self.ranges[at].ready:
                return first, self._ready_end(at, first + messages_max)
            heappop(self._ready_firsts)
        return 0, 0

    def lease_again(self, first: int, end: int, lease: int, due_ms: int) -> int:
        """Lease ready messages first..end, which next_ready() offered; returns their new attempt."""
        at = bisect_right(self.firsts, first) - 1
        attempt = self.ranges[at].attempt + 1
        before = self.ranges[at]
        first_lease = lease if attempt == 1 else 0 if before.is_restored else before.first_lease
        stop = at
        while self.ranges[stop].end < end:
            stop += 1
        self._split(stop, self.firsts[stop], end)
        self._delete(at, stop + 1)
        self.firsts.insert(at, first)
        self.ranges.insert(at, InFlightRange(first, end, lease, attempt, due_ms, first_lease=first_lease))
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        return attempt

    def trim(self, offset: int) -> None:
        """Forget everything below `offset`, which retention has deleted."""
        at = max(bisect_right(self.firsts, offset) - 1, 0)
        if at < len(self.ranges) and self.ranges[at].first < offset < self.ranges[at].end:
            at = self._split(at, offset, self.ranges[at].end)
        elif at < len(self.ranges) and self.ranges[at].end <= offset:
            at += 1
        self._delete(0, at)

    def clear(self) -> None:
        """Forget all ranges."""
        self.firsts.clear()
        self.ranges.clear()
        self._ready_firsts.clear()
        self.messages = self.withheld = self.withheld_messages = 0

    def encoded_progress(self, floor: int, next_offset: int, now_ms: int, time_ms: int, lead_ms: int, young_ms: int) -> bytes:  # fmt: skip
        """Return stored progress of a cursor without early acknowledgements; see progress.py."""
        return encode(
            Progress(floor, next_offset, [each.stored(now_ms, young_ms) for each in self.ranges], time_ms, lead_ms)
        )

    def load(self, value: bytes, base_ms: int) -> tuple[int, int, int]:
        """Add the ranges of stored progress; returns its floor, its next offset and the highest lease that it names.

        Args:
            base_ms: lease time less monotonic time.
        """
        stored = decode(value)
        for each in stored.ranges:
            self._restore(each, stored.time_ms + (each.due << DUE_STEP_BITS) - base_ms)
        return stored.floor, stored.next_offset, stored.top_lease

    def _restore(self, stored: StoredRange, due_ms: int) -> None:
        self.add(stored.first, stored.end, 0, stored.attempt, due_ms, not stored.due)
        if stored.newest_ms:
            self.ranges[-1].restore(stored.oldest_ms, stored.newest_ms)
            self._withhold(self.ranges[-1], stored.is_withheld)

    def is_certain(self, first: int, end: int, lease: int) -> bool:
        """Whether the log says that all of first..end that is open was leased by this lease of another process."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and not (range_.is_restored and range_.is_of(lease, True)):
                return False
            at += 1
        return True

    def _ready_end(self, at: int, end_max: int) -> int:
        end, attempt = self.ranges[at].end, self.ranges[at].attempt
        while end < end_max and at + 1 < len(self.ranges):
            at += 1
            range_ = self.ranges[at]
            if range_.first != end or not range_.ready or range_.attempt != attempt:
                break
            end = range_.end
        return min(end, end_max)

    def _give_to(self, at: int, claimer: int) -> InFlightRange:
        range_ = self.ranges[at]
        before = range_.part(range_.first, range_.end)
        if before.is_restored:
            before.give_to(0)  # when it was leased is known roughly only
        range_.give_to(claimer)
        range_.due_ms, range_.ready = NEVER, False
        self._withhold(range_, False)
        return before

    def _withhold(self, range_: InFlightRange, withheld: bool) -> None:
        if range_.is_withheld != withheld:
            range_.is_withheld = withheld
            sign = 1 if withheld else -1
            self.withheld += sign
            self.withheld_messages += sign * (range_.end - range_.first)

    def _join(self, at: int) -> int:
        """Make withheld range `at` one with the range before it, if they are alike; returns the index of both."""
        if not at or not self.ranges[at - 1].is_continued_by(self.ranges[at]):
            return at
        self.ranges[at - 1].end = self.ranges[at].end
        del self.firsts[at], self.ranges[at]
        self.withheld -= 1
        return at - 1

    def _split(self, at: int, first: int, end: int) -> int:
        """Make first..end, a part of range `at`, a range of its own; returns its index."""
        range_ = self.ranges[at]
        if end < range_.end:
            self._insert(at + 1, range_.part(end, range_.end))
            range_.end = end
        if range_.first < first:
            at += 1
            self._insert(at, range_.part(first, range_.end))
            range_.end = first
        return at

    def _insert(self, at: int, part: InFlightRange) -> None:
        self.firsts.insert(at, part.first)
        self.ranges.insert(at, part)
        self.withheld += part.is_withheld
        if part.ready:
            heappush(self._ready_firsts, part.first)

    def _delete(self, start: int, stop: int) -> None:
        for range_ in self.ranges[start:stop]:
            self._withhold(range_, False)
            self.messages -= range_.end - range_.first
        del self.firsts[start:stop]
        del self.ranges[start:stop]

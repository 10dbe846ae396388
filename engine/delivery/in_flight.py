"""What a group has been given of one queue and not yet acknowledged: ranges of offsets, one entry a lease.

Everything below the hand-out offset that is in no range_ is acknowledged, so the acknowledged ranges are the gaps between
the ranges and need no set of their own.

Invariant: ranges are disjoint, none is empty, and they are ordered by offset; `firsts[i] == ranges[i].first`.
"""

from bisect import bisect_right
from heapq import heappop, heappush

NEVER = (1 << 63) - 1
"""As the due moment: no time makes the range_ ready."""


class InFlightRange:
    """Consecutive messages in one state.

    `lease` is who was given them last (0: somebody before a restart), `attempt` how often they were given out,
    `first_lease` who was given them first (0: somebody before a restart).
    `ready`: the time of the holder is over. They stay his, and his acknowledgement counts, until they are leased again.
    """

    __slots__ = ("attempt", "due_ms", "end", "first", "first_lease", "lease", "ready")

    def __init__(
        self, first: int, end: int, lease: int, attempt: int, due_ms: int, ready: bool = False, first_lease: int = 0
    ) -> None:
        self.first, self.end = first, end
        self.lease, self.attempt = lease, attempt
        self.due_ms, self.ready = due_ms, ready
        self.first_lease = first_lease

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for another message, whoever comes."""
        return not self.ready and not self.lease and self.due_ms == NEVER

    def __repr__(self) -> str:
        state = "ready" if self.ready else f"due {self.due_ms}"
        return f"InFlightRange({self.first}..{self.end} lease {self.lease} attempt {self.attempt} {state})"


class InFlightRanges:
    """The ranges of one queue of one group. Cost of each call follows the ranges that it touches."""

    __slots__ = ("_ready_firsts", "attempt_top", "firsts", "messages", "ranges")

    def __init__(self) -> None:
        self.attempt_top = 0  # no range_ has had more attempts; so what looks for spent ones mostly need not look
        self.firsts: list[int] = []
        self.ranges: list[InFlightRange] = []
        self.messages = 0
        self._ready_firsts: list[int] = []  # heap; an entry whose range_ has gone or is not ready any more is skipped

    def __len__(self) -> int:
        return len(self.ranges)

    def append(self, range_: InFlightRange) -> None:
        """Add a range_ behind all others."""
        self.firsts.append(range_.first)
        self.ranges.append(range_)
        self.messages += range_.end - range_.first
        self.attempt_top = max(self.attempt_top, range_.attempt)
        if range_.ready:
            heappush(self._ready_firsts, range_.first)

    def settle(self, first: int, end: int, lease: int, foreign: bool) -> bool:
        """Take what `lease` holds of first..end out, as acknowledged; False when somebody else holds a part of it.

        Args:
            foreign: the lease was given before a restart, so it may also settle what nobody was given since.
        """
        at = bisect_right(self.firsts, first) - 1
        whole = True
        at = max(at, 0)
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end <= first:
                at += 1
            elif range_.lease == lease or (foreign and not range_.lease):
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                self._delete(at, at + 1)
            else:
                whole = False
                at += 1
        return whole

    def take_out(self, first: int, end: int, lease: int, foreign: bool) -> tuple[bool, list[tuple[int, int]]]:
        """settle(), and what it took out."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        taken = []
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and (range_.lease == lease or (foreign and not range_.lease)):
                taken.append((max(first, range_.first), min(end, range_.end)))
            at += 1
        return self.settle(first, end, lease, foreign), taken

    def wait(self, offset: int) -> None:
        """Add the message behind all others as one that waits for another one and not for time."""
        if self.ranges:
            last = self.ranges[-1]
            if last.end == offset and last.is_waiting:
                last.end += 1
                self.messages += 1
                return
        self.append(InFlightRange(offset, offset + 1, 0, 0, NEVER))

    def make_waiting(self, offset: int) -> None:
        """Let an open message wait."""
        at = self._split(bisect_right(self.firsts, offset) - 1, offset, offset + 1)
        range_ = self.ranges[at]
        range_.lease, range_.due_ms, range_.ready = 0, NEVER, False

    def make_ready(self, offset: int) -> None:
        """If the message waits, it may now be handed out."""
        at = max(bisect_right(self.firsts, offset) - 1, 0)
        if at < len(self.ranges) and self.ranges[at].first <= offset < self.ranges[at].end and self.ranges[at].is_waiting:
            self.ranges[self._split(at, offset, offset + 1)].ready = True
            heappush(self._ready_firsts, offset)

    def end_waiting(self) -> None:
        """Let all messages that wait be handed out."""
        for range_ in self.ranges:
            if range_.is_waiting:
                range_.ready = True
                heappush(self._ready_firsts, range_.first)

    def all_ready(self) -> bool:
        """Whether nobody holds anything."""
        return all(range_.ready for range_ in self.ranges)

    def first_spent(self, attempts_max: int) -> InFlightRange | None:
        """The first range_ whose attempt number `attempts_max`, or a later one, has failed."""
        if self.attempt_top < attempts_max:
            return None
        self.attempt_top = max((range_.attempt for range_ in self.ranges), default=0)
        return next((range_ for range_ in self.ranges if range_.attempt >= attempts_max + (not range_.ready)), None)

    def hold(self, first: int, end: int, lease: int, foreign: bool, due_ms: int, now_ms: int) -> int:
        """Keep what `lease` holds of first..end from everybody until `due_ms`; returns how many messages that are."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        held = 0
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and (range_.lease == lease or (foreign and not range_.lease)):
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                range_ = self.ranges[at]
                range_.lease, range_.due_ms, range_.ready = lease, due_ms, due_ms <= now_ms
                held += range_.end - range_.first
                if range_.ready:
                    heappush(self._ready_firsts, range_.first)
            at += 1
        return held

    def claim(self, first: int, end: int, lease: int, foreign: bool, attempt_min: int, claimer: int) -> list[InFlightRange]:
        """Give what `lease` holds of first..end, and was given at least `attempt_min` times, to `claimer` for good.

        Returns copies of what was claimed, as it was before.
        """
        if self.attempt_top < attempt_min:
            return []
        at = max(bisect_right(self.firsts, first) - 1, 0)
        claimed = []
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            mine = range_.lease == lease or (foreign and not range_.lease)
            if range_.end > first and mine and range_.attempt >= attempt_min:
                at = self._split(at, max(first, range_.first), min(end, range_.end))
                claimed.append(self._give_to(at, claimer))
            at += 1
        return claimed

    def claim_ready(self, first: int, end: int, claimer: int) -> list[InFlightRange]:
        """The same with what nobody holds of first..end any more, or yet."""
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
        """The same with every range_ whose last attempt is over: ready, and given `attempts_max` times or more."""
        if self.attempt_top < attempts_max:
            return []
        self.attempt_top = max((range_.attempt for range_ in self.ranges), default=0)
        spent = [at for at, range_ in enumerate(self.ranges) if range_.ready and range_.attempt >= attempts_max]
        return [self._give_to(at, claimer) for at in spent]

    def postpone_spent(self, attempts_max: int, due_ms: int) -> bool:
        """Let the holders of ready ranges without another attempt have time until `due_ms`; False when there are none."""
        spent = [range_ for range_ in self.ranges if range_.ready and range_.attempt >= attempts_max]
        for range_ in spent:
            range_.ready, range_.due_ms = False, due_ms
        return bool(spent)

    def attempt_of(self, first: int, end: int, lease: int, foreign: bool) -> int:
        """How often the first messages of first..end that `lease` holds were given out; 0 when it holds none."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        while at < len(self.ranges) and self.firsts[at] < end:
            range_ = self.ranges[at]
            if range_.end > first and (range_.lease == lease or (foreign and not range_.lease)):
                return range_.attempt
            at += 1
        return 0

    def expire(self, now_ms: int) -> int | None:
        """Make ready what is due; returns when the next range_ is due, None when no range_ waits for a moment."""
        soonest = None
        for range_ in self.ranges:
            if range_.ready:
                continue
            if range_.due_ms <= now_ms:
                range_.ready = True
                heappush(self._ready_firsts, range_.first)
            elif range_.due_ms != NEVER and (soonest is None or range_.due_ms < soonest):
                soonest = range_.due_ms
        return soonest

    def next_ready(self, messages_max: int) -> tuple[int, int, int] | None:
        """Return (first, end, attempt so far) of the first messages that may be handed out again, None without any.

        Neighbouring ranges of one attempt are offered as one, so that single leases that ran out side by side do not
        stay single for ever.
        """
        while self._ready_firsts:
            first = self._ready_firsts[0]
            at = bisect_right(self.firsts, first) - 1
            if at >= 0 and self.firsts[at] == first and self.ranges[at].ready:
                return first, self._ready_end(at, first + messages_max), self.ranges[at].attempt
            heappop(self._ready_firsts)
        return None

    def release(self, first: int, end: int, lease: int, due_ms: int) -> int:
        """Give ready messages first..end, which next_ready() offered, to `lease`; returns their new attempt."""
        at = bisect_right(self.firsts, first) - 1
        attempt = self.ranges[at].attempt + 1
        first_lease = self.ranges[at].first_lease if attempt > 1 else lease
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
        """Forget everything below `offset`: retention has deleted it."""
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
        self.messages = 0

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
        before = InFlightRange(range_.first, range_.end, range_.lease, range_.attempt, range_.due_ms, range_.ready, range_.first_lease)
        range_.lease, range_.due_ms, range_.ready = claimer, NEVER, False
        return before

    def _split(self, at: int, first: int, end: int) -> int:
        """Make first..end, a part of range_ `at`, a range_ of its own; returns where it is."""
        range_ = self.ranges[at]
        if end < range_.end:
            self._insert(at + 1, InFlightRange(end, range_.end, range_.lease, range_.attempt, range_.due_ms, range_.ready, range_.first_lease))
            range_.end = end
        if range_.first < first:
            at += 1
            self._insert(at, InFlightRange(first, range_.end, range_.lease, range_.attempt, range_.due_ms, range_.ready, range_.first_lease))
            range_.end = first
        return at

    def _insert(self, at: int, part: InFlightRange) -> None:
        self.firsts.insert(at, part.first)
        self.ranges.insert(at, part)
        if part.ready:
            heappush(self._ready_firsts, part.first)

    def _delete(self, start: int, stop: int) -> None:
        for range_ in self.ranges[start:stop]:
            self.messages -= range_.end - range_.first
        del self.firsts[start:stop]
        del self.ranges[start:stop]

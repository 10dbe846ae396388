"""What a group has been given of one queue and not yet acknowledged: runs of offsets, one entry a lease.

Everything below the hand-out offset that is in no run is acknowledged, so the acknowledged ranges are the gaps between
the runs and need no set of their own.

Invariant: runs are disjoint, none is empty, and they are ordered by offset; `firsts[i] == runs[i].first`.
"""

from bisect import bisect_right
from heapq import heappop, heappush

NEVER = (1 << 63) - 1
"""As the due moment: no time makes the run ready."""


class Run:
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
        return f"Run({self.first}..{self.end} lease {self.lease} attempt {self.attempt} {state})"


class OpenRuns:
    """The runs of one queue of one group. Cost of each call follows the runs that it touches."""

    __slots__ = ("_ready_firsts", "attempt_top", "firsts", "messages", "runs")

    def __init__(self) -> None:
        self.attempt_top = 0  # no run has had more attempts; so what looks for spent ones mostly need not look
        self.firsts: list[int] = []
        self.runs: list[Run] = []
        self.messages = 0
        self._ready_firsts: list[int] = []  # heap; an entry whose run has gone or is not ready any more is skipped

    def __len__(self) -> int:
        return len(self.runs)

    def append(self, run: Run) -> None:
        """Add a run behind all others."""
        self.firsts.append(run.first)
        self.runs.append(run)
        self.messages += run.end - run.first
        self.attempt_top = max(self.attempt_top, run.attempt)
        if run.ready:
            heappush(self._ready_firsts, run.first)

    def settle(self, first: int, end: int, lease: int, foreign: bool) -> bool:
        """Take what `lease` holds of first..end out, as acknowledged; False when somebody else holds a part of it.

        Args:
            foreign: the lease was given before a restart, so it may also settle what nobody was given since.
        """
        at = bisect_right(self.firsts, first) - 1
        whole = True
        at = max(at, 0)
        while at < len(self.runs) and self.firsts[at] < end:
            run = self.runs[at]
            if run.end <= first:
                at += 1
            elif run.lease == lease or (foreign and not run.lease):
                at = self._split(at, max(first, run.first), min(end, run.end))
                self._delete(at, at + 1)
            else:
                whole = False
                at += 1
        return whole

    def take_out(self, first: int, end: int, lease: int, foreign: bool) -> tuple[bool, list[tuple[int, int]]]:
        """settle(), and what it took out."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        taken = []
        while at < len(self.runs) and self.firsts[at] < end:
            run = self.runs[at]
            if run.end > first and (run.lease == lease or (foreign and not run.lease)):
                taken.append((max(first, run.first), min(end, run.end)))
            at += 1
        return self.settle(first, end, lease, foreign), taken

    def wait(self, offset: int) -> None:
        """Add the message behind all others as one that waits for another one and not for time."""
        if self.runs:
            last = self.runs[-1]
            if last.end == offset and last.is_waiting:
                last.end += 1
                self.messages += 1
                return
        self.append(Run(offset, offset + 1, 0, 0, NEVER))

    def make_waiting(self, offset: int) -> None:
        """Let an open message wait."""
        at = self._split(bisect_right(self.firsts, offset) - 1, offset, offset + 1)
        run = self.runs[at]
        run.lease, run.due_ms, run.ready = 0, NEVER, False

    def make_ready(self, offset: int) -> None:
        """If the message waits, it may now be handed out."""
        at = max(bisect_right(self.firsts, offset) - 1, 0)
        if at < len(self.runs) and self.runs[at].first <= offset < self.runs[at].end and self.runs[at].is_waiting:
            self.runs[self._split(at, offset, offset + 1)].ready = True
            heappush(self._ready_firsts, offset)

    def end_waiting(self) -> None:
        """Let all messages that wait be handed out."""
        for run in self.runs:
            if run.is_waiting:
                run.ready = True
                heappush(self._ready_firsts, run.first)

    def all_ready(self) -> bool:
        """Whether nobody holds anything."""
        return all(run.ready for run in self.runs)

    def first_spent(self, attempts_max: int) -> Run | None:
        """The first run whose attempt number `attempts_max`, or a later one, has failed."""
        if self.attempt_top < attempts_max:
            return None
        self.attempt_top = max((run.attempt for run in self.runs), default=0)
        return next((run for run in self.runs if run.attempt >= attempts_max + (not run.ready)), None)

    def hold(self, first: int, end: int, lease: int, foreign: bool, due_ms: int, now_ms: int) -> int:
        """Keep what `lease` holds of first..end from everybody until `due_ms`; returns how many messages that are."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        held = 0
        while at < len(self.runs) and self.firsts[at] < end:
            run = self.runs[at]
            if run.end > first and (run.lease == lease or (foreign and not run.lease)):
                at = self._split(at, max(first, run.first), min(end, run.end))
                run = self.runs[at]
                run.lease, run.due_ms, run.ready = lease, due_ms, due_ms <= now_ms
                held += run.end - run.first
                if run.ready:
                    heappush(self._ready_firsts, run.first)
            at += 1
        return held

    def claim(self, first: int, end: int, lease: int, foreign: bool, attempt_min: int, claimer: int) -> list[Run]:
        """Give what `lease` holds of first..end, and was given at least `attempt_min` times, to `claimer` for good.

        Returns copies of what was claimed, as it was before.
        """
        if self.attempt_top < attempt_min:
            return []
        at = max(bisect_right(self.firsts, first) - 1, 0)
        claimed = []
        while at < len(self.runs) and self.firsts[at] < end:
            run = self.runs[at]
            mine = run.lease == lease or (foreign and not run.lease)
            if run.end > first and mine and run.attempt >= attempt_min:
                at = self._split(at, max(first, run.first), min(end, run.end))
                claimed.append(self._give_to(at, claimer))
            at += 1
        return claimed

    def claim_ready(self, first: int, end: int, claimer: int) -> list[Run]:
        """The same with what nobody holds of first..end any more, or yet."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        claimed = []
        while at < len(self.runs) and self.firsts[at] < end:
            run = self.runs[at]
            if run.end > first and run.ready:
                at = self._split(at, max(first, run.first), min(end, run.end))
                claimed.append(self._give_to(at, claimer))
            at += 1
        return claimed

    def claim_spent(self, attempts_max: int, claimer: int) -> list[Run]:
        """The same with every run whose last attempt is over: ready, and given `attempts_max` times or more."""
        if self.attempt_top < attempts_max:
            return []
        self.attempt_top = max((run.attempt for run in self.runs), default=0)
        spent = [at for at, run in enumerate(self.runs) if run.ready and run.attempt >= attempts_max]
        return [self._give_to(at, claimer) for at in spent]

    def postpone_spent(self, attempts_max: int, due_ms: int) -> bool:
        """Let the holders of ready runs without another attempt have time until `due_ms`; False when there are none."""
        spent = [run for run in self.runs if run.ready and run.attempt >= attempts_max]
        for run in spent:
            run.ready, run.due_ms = False, due_ms
        return bool(spent)

    def attempt_of(self, first: int, end: int, lease: int, foreign: bool) -> int:
        """How often the first messages of first..end that `lease` holds were given out; 0 when it holds none."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        while at < len(self.runs) and self.firsts[at] < end:
            run = self.runs[at]
            if run.end > first and (run.lease == lease or (foreign and not run.lease)):
                return run.attempt
            at += 1
        return 0

    def expire(self, now_ms: int) -> int | None:
        """Make ready what is due; returns when the next run is due, None when no run waits for a moment."""
        soonest = None
        for run in self.runs:
            if run.ready:
                continue
            if run.due_ms <= now_ms:
                run.ready = True
                heappush(self._ready_firsts, run.first)
            elif run.due_ms != NEVER and (soonest is None or run.due_ms < soonest):
                soonest = run.due_ms
        return soonest

    def next_ready(self, messages_max: int) -> tuple[int, int, int] | None:
        """Return (first, end, attempt so far) of the first messages that may be handed out again, None without any.

        Neighbouring runs of one attempt are offered as one, so that single leases that ran out side by side do not
        stay single for ever.
        """
        while self._ready_firsts:
            first = self._ready_firsts[0]
            at = bisect_right(self.firsts, first) - 1
            if at >= 0 and self.firsts[at] == first and self.runs[at].ready:
                return first, self._ready_end(at, first + messages_max), self.runs[at].attempt
            heappop(self._ready_firsts)
        return None

    def release(self, first: int, end: int, lease: int, due_ms: int) -> int:
        """Give ready messages first..end, which next_ready() offered, to `lease`; returns their new attempt."""
        at = bisect_right(self.firsts, first) - 1
        attempt = self.runs[at].attempt + 1
        first_lease = self.runs[at].first_lease if attempt > 1 else lease
        stop = at
        while self.runs[stop].end < end:
            stop += 1
        self._split(stop, self.firsts[stop], end)
        self._delete(at, stop + 1)
        self.firsts.insert(at, first)
        self.runs.insert(at, Run(first, end, lease, attempt, due_ms, first_lease=first_lease))
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        return attempt

    def trim(self, offset: int) -> None:
        """Forget everything below `offset`: retention has deleted it."""
        at = max(bisect_right(self.firsts, offset) - 1, 0)
        if at < len(self.runs) and self.runs[at].first < offset < self.runs[at].end:
            at = self._split(at, offset, self.runs[at].end)
        elif at < len(self.runs) and self.runs[at].end <= offset:
            at += 1
        self._delete(0, at)

    def clear(self) -> None:
        """Forget all runs."""
        self.firsts.clear()
        self.runs.clear()
        self._ready_firsts.clear()
        self.messages = 0

    def _ready_end(self, at: int, end_max: int) -> int:
        end, attempt = self.runs[at].end, self.runs[at].attempt
        while end < end_max and at + 1 < len(self.runs):
            at += 1
            run = self.runs[at]
            if run.first != end or not run.ready or run.attempt != attempt:
                break
            end = run.end
        return min(end, end_max)

    def _give_to(self, at: int, claimer: int) -> Run:
        run = self.runs[at]
        before = Run(run.first, run.end, run.lease, run.attempt, run.due_ms, run.ready, run.first_lease)
        run.lease, run.due_ms, run.ready = claimer, NEVER, False
        return before

    def _split(self, at: int, first: int, end: int) -> int:
        """Make first..end, a part of run `at`, a run of its own; returns where it is."""
        run = self.runs[at]
        if end < run.end:
            self._insert(at + 1, Run(end, run.end, run.lease, run.attempt, run.due_ms, run.ready, run.first_lease))
            run.end = end
        if run.first < first:
            at += 1
            self._insert(at, Run(first, run.end, run.lease, run.attempt, run.due_ms, run.ready, run.first_lease))
            run.end = first
        return at

    def _insert(self, at: int, part: Run) -> None:
        self.firsts.insert(at, part.first)
        self.runs.insert(at, part)
        if part.ready:
            heappush(self._ready_firsts, part.first)

    def _delete(self, start: int, stop: int) -> None:
        for run in self.runs[start:stop]:
            self.messages -= run.end - run.first
        del self.firsts[start:stop]
        del self.runs[start:stop]

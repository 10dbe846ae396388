"""What a group has been given of one queue and not yet acknowledged: runs of offsets, one entry a lease.

Everything below the hand-out offset that is in no run is acknowledged, so the acknowledged ranges are the gaps between
the runs and need no set of their own.

Invariant: runs are disjoint, none is empty, and they are ordered by offset; `firsts[i] == runs[i].first`.
"""

from bisect import bisect_right
from heapq import heappop, heappush


class Run:
    """Consecutive messages in one state.

    `lease` is who was given them last (0: somebody before a restart), `attempt` how often they were given out.
    `ready`: the time of the holder is over. They stay his, and his acknowledgement counts, until they are leased again.
    """

    __slots__ = ("attempt", "due_ms", "end", "first", "lease", "ready")

    def __init__(self, first: int, end: int, lease: int, attempt: int, due_ms: int, ready: bool = False) -> None:
        self.first, self.end = first, end
        self.lease, self.attempt = lease, attempt
        self.due_ms, self.ready = due_ms, ready

    def __repr__(self) -> str:
        state = "ready" if self.ready else f"due {self.due_ms}"
        return f"Run({self.first}..{self.end} lease {self.lease} attempt {self.attempt} {state})"


class OpenRuns:
    """The runs of one queue of one group. Cost of each call follows the runs that it touches."""

    __slots__ = ("_ready_firsts", "firsts", "messages", "runs")

    def __init__(self) -> None:
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

    def hold(self, first: int, end: int, lease: int, foreign: bool, due_ms: int, now_ms: int) -> bool:
        """Keep what `lease` holds of first..end from everybody until `due_ms`; False when it does not hold all of it."""
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
        return held == end - first

    def expire(self, now_ms: int) -> int | None:
        """Make ready what is due; returns when the next run is due, None when no run waits."""
        soonest = None
        for run in self.runs:
            if run.ready:
                continue
            if run.due_ms <= now_ms:
                run.ready = True
                heappush(self._ready_firsts, run.first)
            elif soonest is None or run.due_ms < soonest:
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
        stop = at
        while self.runs[stop].end < end:
            stop += 1
        self._split(stop, self.firsts[stop], end)
        self._delete(at, stop + 1)
        self.firsts.insert(at, first)
        self.runs.insert(at, Run(first, end, lease, attempt, due_ms))
        self.messages += end - first
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

    def _split(self, at: int, first: int, end: int) -> int:
        """Make first..end, a part of run `at`, a run of its own; returns where it is."""
        run = self.runs[at]
        if end < run.end:
            self._insert(at + 1, Run(end, run.end, run.lease, run.attempt, run.due_ms, run.ready))
            run.end = end
        if run.first < first:
            at += 1
            self._insert(at, Run(first, run.end, run.lease, run.attempt, run.due_ms, run.ready))
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

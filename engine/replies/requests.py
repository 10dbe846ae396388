"""Requests that were dispatched to consumers: expired deadlines, and groups that have failed.

Pure: the clocks and the report of a failure are passed in. A request that was never dispatched is not remembered until
its asker is told so; it is withdrawn then. An answered one is remembered until its deadline, so that no other group gets
it. So is one whose asker waits no more. All others are forgotten some seconds after their deadlines.

A deadline is the time at which the request was stored, by the engine's clock, and the wait that its token names. The
clock of the asker's proxy may differ, so its time is compared only for a token of an earlier version, without a wait.
The engine's clock may be set, too. So what is forgotten is over by the monotonic clock, which `CallTimes` knows.
"""

from collections.abc import Callable

from common.reply_token import TOKEN_SIZE, times_of
from common.timer_heap import TimerHeap
from engine.link.codes import CONSUMER_FAILED, NO_CONSUMER, NO_REPLY
from engine.link.record import HAS_TRAILER
from engine.replies.call_times import STEP_MS, CallTimes

REMEMBERED_MAX = 200_000
REMEMBERED_MS = 5_000
"""Time after its deadline in which the outcome of a request can be queried."""
TICK_MS = 1_000
WAIT_MS_MAX = 300_000


class GivenRequest:
    """The groups that were given a request, and those of them that have failed."""

    __slots__ = ("failed", "given_to", "tick")

    def __init__(self) -> None:
        self.given_to: set[str] = set()
        self.failed: set[str] = set()
        self.tick = 0


class Requests:
    """Delivery's questions and reports about requests.

    Args:
        wall_ms: Unix time, by which requests are stored.
        monotonic_ms: clock of the times for which requests are remembered.
        on_failed: called with the token when every group that was given a request has failed.
        newest_ms: the log's newest time: no request is stored under an earlier one. A clock that is behind it was set
            back, or is another node's.
    """

    def __init__(
        self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int],
        on_failed: Callable[[bytes], None] = lambda token: None, newest_ms: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        self._wall_ms, self._monotonic_ms, self._newest_ms = wall_ms, monotonic_ms, newest_ms
        self._on_failed = on_failed
        self.expired = 0  # not dispatched: past their deadlines, answered, failed or withdrawn
        self._given: dict[bytes, GivenRequest] = {}
        self._ended: dict[bytes, None] = {}  # answered, failed or withdrawn: no group gets them any more
        self._calls = CallTimes(WAIT_MS_MAX + REMEMBERED_MS)
        self._unsure_until_ms = 0  # until then, a request that is not in `_given` may have been given all the same
        self._ends = TimerHeap(TICK_MS)
        self._swept_tick = 0

    def __len__(self) -> int:
        return len(self._given)

    def is_over(self, record: bytes, stored_at_ms: int) -> bool:
        """Whether this record with a trailer is a request past its deadline, or that has ended: it is not delivered."""
        if self._ended and record[-TOKEN_SIZE:] in self._ended:
            return True
        at = len(record) - TOKEN_SIZE
        times = times_of(record, at)
        if times is None:
            return False
        reply_by_ms, wait_ms = times
        if (stored_at_ms + wait_ms if wait_ms else reply_by_ms) <= max(self._wall_ms(), self._newest_ms()):
            return True
        return self._calls.age_ms(record, self._monotonic_ms(), at) >= _longest_ms(wait_ms)

    def given(self, group: str, record: bytes) -> None:
        """Note that this record with a trailer is dispatched to the group."""
        token = record[-TOKEN_SIZE:]
        request = self._given.get(token)
        if request is None:
            times = times_of(token)
            if times is None:
                return
            self._forget_due()
            until_ms = self._until_ms(token, times[1]) + REMEMBERED_MS
            if len(self._given) >= REMEMBERED_MAX:
                self._unsure_until_ms = max(self._unsure_until_ms, until_ms)
                return
            request = self._given[token] = GivenRequest()
            request.tick = self._ends.schedule(until_ms, token)
        request.given_to.add(group)
        request.failed.discard(group)

    def failed(self, group: str, record: bytes) -> None:
        """Note that the group has rejected the record, or its attempts have ended.

        Records that are no requests are ignored.
        """
        if len(record) <= TOKEN_SIZE or not record[4] & HAS_TRAILER:
            return
        token = record[-TOKEN_SIZE:]
        request = self._given.get(token)
        if request is None or group in request.failed:
            return
        request.failed.add(group)
        if request.failed >= request.given_to:
            if len(self._ended) < REMEMBERED_MAX:
                self._ended[token] = None  # until `request.tick`: its asker has gone, so no further group gets it
            self._on_failed(token)

    def answered(self, token: bytes) -> None:
        """Note that the reply has arrived: its outcome will not be queried, and no other replier has to answer it."""
        request = self._given.pop(token, None)
        if request is not None:
            self._ends.cancel(request.tick, token)
        self._end(token)

    def outcome(self, token: bytes) -> int:
        """Reason for the missing reply: NO_CONSUMER, NO_REPLY or CONSUMER_FAILED. The asker waits no more.

        The request is withdrawn: no group gets it after the answer, nor again. Where no more can be remembered, the answer
        is NO_REPLY, which says that a group may have it; so it is to a late question.
        """
        request = self._given.get(token)
        if request is not None and request.failed >= request.given_to:
            return CONSUMER_FAILED
        is_known = request is None and self._remembers(token)
        has_ended = self._end(token)
        return NO_CONSUMER if has_ended and is_known else NO_REPLY

    def _remembers(self, token: bytes) -> bool:
        """Whether the request would be in `_given`, if a group had been given it."""
        times, now_ms = times_of(token), self._monotonic_ms()
        if times is None or now_ms < self._unsure_until_ms:
            return False
        return self._calls.age_ms(token, now_ms) < _longest_ms(times[1]) + REMEMBERED_MS - STEP_MS

    def _end(self, token: bytes) -> bool:
        """Give the request to no further group; False: it is not remembered."""
        self._forget_due()
        if token in self._ended:
            return True
        times = times_of(token)
        if times is None or len(self._ended) >= REMEMBERED_MAX:
            return False
        self._ended[token] = None
        if (request := self._given.get(token)) is not None:
            self._ends.cancel(request.tick, token)
            request.tick = self._ends.schedule(self._until_ms(token, times[1]) + REMEMBERED_MS, token)
        else:
            self._ends.schedule(self._until_ms(token, times[1]) + STEP_MS, token)
        return True

    def _until_ms(self, token: bytes, wait_ms: int) -> int:
        """Monotonic time at which the deadline has passed of a request that was stored before now.

        `STEP_MS` later its call is known to be so old.
        """
        now_ms = self._monotonic_ms()
        self._calls.see(token, now_ms)
        return now_ms + _longest_ms(wait_ms)

    def _forget_due(self) -> None:
        now_ms = self._monotonic_ms()
        if now_ms // TICK_MS == self._swept_tick:
            return
        self._swept_tick = now_ms // TICK_MS
        for token in self._ends.pop_due(now_ms):
            self._ended.pop(token, None)
            self._given.pop(token, None)


def _longest_ms(wait_ms: int) -> int:
    """Maximum time for which an asker waits whose token names this wait."""
    return min(wait_ms or WAIT_MS_MAX, WAIT_MS_MAX)

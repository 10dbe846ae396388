"""Requests that were dispatched to consumers: expired deadlines, and groups that have failed.

Pure: the wall clock and the report of a failure are passed in. A request that was never dispatched is not remembered.
An answered one is remembered until its deadline, so that no other group gets it. So is one whose asker was told that it
failed. All others are forgotten some seconds after their deadlines.
"""

from collections.abc import Callable

from common.reply_token import TOKEN_SIZE, reply_by_of
from common.timer_heap import TimerHeap
from engine.link.codes import CONSUMER_FAILED, NO_CONSUMER, NO_REPLY
from engine.link.record import HAS_TRAILER

REMEMBERED_MAX = 200_000
REMEMBERED_MS = 5_000
"""Time after its deadline in which the outcome of a request can be queried."""
TICK_MS = 1_000


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
        wall_ms: Unix time, against which deadlines are checked.
        on_failed: called with the token when every group that was given a request has failed.
    """

    def __init__(self, wall_ms: Callable[[], int], on_failed: Callable[[bytes], None] = lambda token: None) -> None:
        self._wall_ms, self._on_failed = wall_ms, on_failed
        self.expired = 0  # not dispatched: past their deadlines, answered or failed
        self._given: dict[bytes, GivenRequest] = {}
        self._answered: dict[bytes, None] = {}
        self._ends = TimerHeap(TICK_MS)
        self._swept_tick = 0

    def __len__(self) -> int:
        return len(self._given)

    def is_over(self, record: bytes) -> bool:
        """Whether this record with a trailer is a request past its deadline, answered or failed: it is not delivered."""
        if self._answered and record[-TOKEN_SIZE:] in self._answered:
            return True
        reply_by_ms = reply_by_of(record, len(record) - TOKEN_SIZE)
        return reply_by_ms is not None and reply_by_ms <= self._wall_ms()

    def given(self, group: str, record: bytes) -> None:
        """Note that this record with a trailer is dispatched to the group."""
        token = record[-TOKEN_SIZE:]
        request = self._given.get(token)
        if request is None:
            reply_by_ms = reply_by_of(token)
            if reply_by_ms is None:
                return
            if reply_by_ms // TICK_MS != self._swept_tick:
                self._swept_tick = reply_by_ms // TICK_MS
                self._forget_due()
            if len(self._given) >= REMEMBERED_MAX:
                return
            request = self._given[token] = GivenRequest()
            request.tick = self._ends.schedule(reply_by_ms + REMEMBERED_MS, token)
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
            if len(self._answered) < REMEMBERED_MAX:
                self._answered[token] = None  # until `request.tick`: its asker has gone, so no further group gets it
            self._on_failed(token)

    def answered(self, token: bytes) -> None:
        """Note that the reply has arrived: its outcome will not be queried, and no other replier has to answer it."""
        request = self._given.pop(token, None)
        if request is not None:
            self._ends.cancel(request.tick, token)
        reply_by_ms = reply_by_of(token)
        if reply_by_ms is not None and reply_by_ms > self._wall_ms() and len(self._answered) < REMEMBERED_MAX:
            self._forget_due()
            self._answered[token] = None
            self._ends.schedule(reply_by_ms, token)

    def outcome(self, token: bytes) -> int:
        """Reason for the missing reply: NO_CONSUMER, NO_REPLY or CONSUMER_FAILED."""
        request = self._given.get(token)
        if request is None:
            return NO_CONSUMER
        return CONSUMER_FAILED if request.failed >= request.given_to else NO_REPLY

    def _forget_due(self) -> None:
        for token in self._ends.pop_due(self._wall_ms()):
            self._answered.pop(token, None)
            self._given.pop(token, None)

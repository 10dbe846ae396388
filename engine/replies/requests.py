"""Requests that consumers have been given: whose time is over, and who has failed.

Pure: the wall clock and the news of a failure are passed in. Nothing is kept of a request that nobody was given, nor of one that was
answered; what else there is goes at its deadline.
"""

from collections.abc import Callable

from common.reply_token import TOKEN_SIZE, reply_by_of
from common.timer_heap import TimerHeap
from engine.link.layout import CONSUMER_FAILED, HAS_TRAILER, NO_CONSUMER, NO_REPLY

REMEMBERED_MAX = 200_000
REMEMBERED_MS = 5_000
"""How long after its deadline a request's fate can still be asked for."""
TICK_MS = 1_000


class Fate:
    """Which groups were given a request, and which of them have failed."""

    __slots__ = ("failed", "taken", "tick")

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.failed: set[str] = set()
        self.tick = 0


class Requests:
    """What delivery asks and tells of requests.

    Args:
        wall_ms: Unix time, against which deadlines are held.
        on_failed: called with the token when every group that took a request has failed.
    """

    def __init__(self, wall_ms: Callable[[], int], on_failed: Callable[[bytes], None] = lambda token: None) -> None:
        self.wall_ms, self.on_failed = wall_ms, on_failed
        self.expired = 0
        self._fates: dict[bytes, Fate] = {}
        self._ends = TimerHeap(TICK_MS)
        self._looked = 0  # the tick for which it was last looked what can be forgotten

    def __len__(self) -> int:
        return len(self._fates)

    def is_over(self, record: bytes) -> bool:
        """Whether this record with a trailer is a request whose deadline has passed, so that it must not be handed out."""
        reply_by_ms = reply_by_of(record, len(record) - TOKEN_SIZE)
        return reply_by_ms is not None and reply_by_ms <= self.wall_ms()

    def given(self, group: str, record: bytes) -> None:
        """A consumer of the group gets this record with a trailer."""
        data = record[-TOKEN_SIZE:]
        fate = self._fates.get(data)
        if fate is None:
            reply_by_ms = reply_by_of(data)
            if reply_by_ms is None:
                return
            if reply_by_ms // TICK_MS != self._looked:
                self._looked = reply_by_ms // TICK_MS
                self._forget_due()
            if len(self._fates) >= REMEMBERED_MAX:
                return
            fate = self._fates[data] = Fate()
            fate.tick = self._ends.schedule(reply_by_ms + REMEMBERED_MS, data)
        fate.taken.add(group)
        fate.failed.discard(group)

    def failed(self, group: str, record: bytes) -> None:
        """The group gives the record up: rejected, or its attempts have ended. Records that are no requests are passed over."""
        if len(record) <= TOKEN_SIZE or not record[4] & HAS_TRAILER:
            return
        data = record[-TOKEN_SIZE:]
        fate = self._fates.get(data)
        if fate is None or group in fate.failed:
            return
        fate.failed.add(group)
        if fate.failed >= fate.taken:
            self.on_failed(data)

    def answered(self, data: bytes) -> None:
        """Its reply has arrived; nobody will ask for its fate."""
        fate = self._fates.pop(data, None)
        if fate is not None:
            self._ends.cancel(fate.tick, data)

    def outcome(self, data: bytes) -> int:
        """Why there was no reply: NO_CONSUMER, NO_REPLY or CONSUMER_FAILED."""
        fate = self._fates.get(data)
        if fate is None:
            return NO_CONSUMER
        return CONSUMER_FAILED if fate.failed >= fate.taken else NO_REPLY

    def _forget_due(self) -> None:
        for data in self._ends.pop_due(self.wall_ms()):
            self._fates.pop(data, None)

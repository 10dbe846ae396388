"""One request asked of several broker groups: who still owes an answer, and when the joined one goes out.

All are asked at once for a share of what is wanted. The first that has something ends the others' waiting. An isolated group is not
waited for while there are others; what it leases meanwhile, to nobody, is given back when its answer comes.
"""

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable

from common.contract import Code
from consumer_proxy.pull.link_bytes import NO_TOPICS, encode_acks, give_back
from consumer_proxy.sources.base import Answer, SourceDown
from consumer_proxy.sources.group_link import GroupLink
from consumer_proxy.sources.splitting import (
    Pieces,
    Pull,
    join_codes,
    join_reports,
    read_codes,
    read_reports,
)
from engine.client.rpc import LinkDown

log = logging.getLogger("penstock.consumer")
PULL, READ = 20, 21  # operations of the link
AWAY = "the engine cannot be reached at the moment"


class Part:
    """What one group was asked. `items`: which of the request's acknowledgements or positions are its own."""

    __slots__ = ("answered", "items", "link", "request_id", "waits")

    def __init__(self, link: GroupLink, items: list[int], waits: bool):
        self.link, self.items, self.waits = link, items, waits
        self.request_id = 0
        self.answered = False


class Joint(ABC):
    """
    Args:
        answer: called once with the joined answer, never inside `ask`.
        gives_up: whether a link's answer is not to be waited for.
        on_done: called with this joint when the answer is out.
    """

    op: int

    def __init__(self, answer: Answer, gives_up: Callable[[GroupLink], bool], on_done: Callable[["Joint"], None]):
        self._answer, self._gives_up, self._on_done = answer, gives_up, on_done
        self._parts: list[Part] = []
        self._pieces = Pieces()
        self._refusal: tuple[int, bytes] | None = None
        self._heard = self._done = self._withdrawn = False

    def ask(self, link: GroupLink, items: list[int], request: bytes, waits: bool) -> bool:
        """Ask a group for its part; False when it cannot be asked."""
        part = Part(link, items, waits)
        try:
            part.request_id = link.send(
                self.op, request, part, lambda code, payload: self._answered(part, code, payload), waits
            )
        except LinkDown:
            return False
        self._parts.append(part)
        return True

    def begun(self) -> None:
        """All have been asked. Raises SourceDown when none could be."""
        if not self._parts:
            raise SourceDown(AWAY)

    def withdraw(self) -> None:
        """Whoever waits is to answer at once with what it has."""
        self._withdrawn = True
        for part in self._parts:
            if not part.answered and part.waits:
                part.waits = False
                part.link.withdraw(part.request_id, part)

    def _answered(self, part: Part, code: int, payload: bytes) -> None:
        part.answered = True
        part.link.settled(part)
        if self._done:
            self._give_back(part, code, payload)
            return
        if code == Code.OK:
            try:
                if self._take(part, payload):
                    self.withdraw()
                self._heard = True
            except (ValueError, KeyError, struct.error):
                log.exception("broker_group=%s: an answer makes no sense", part.link.name)
                self._refused(part, Code.UNAVAILABLE)
        else:
            self._refusal = self._refusal or (code, payload)
            self._refused(part, code)
        self.settle()

    def settle(self) -> None:
        """Answer when nobody is left to wait for."""
        open_parts = [part for part in self._parts if not part.answered]
        if self._done or any(not self._gives_up(part.link) for part in open_parts):
            return
        for part in open_parts:
            self._refused(part, Code.TIMEOUT)
        self._done = True
        self._on_done(self)
        if self._heard:
            self._answer(Code.OK, self._joined())
        else:
            self._answer(*(self._refusal or (Code.UNAVAILABLE, AWAY.encode())))

    @abstractmethod
    def _take(self, part: Part, payload: bytes) -> bool:
        """Keep what the group answered; whether messages were in it."""

    @abstractmethod
    def _refused(self, part: Part, code: int) -> None:
        """The part's items have this code."""

    @abstractmethod
    def _joined(self) -> bytes: ...

    @abstractmethod
    def _give_back(self, part: Part, code: int, payload: bytes) -> None:
        """An answer that came too late."""


class JointPull(Joint):
    """PULL: codes of acknowledgements in the request's order, pieces one group behind the other."""

    op = PULL

    def __init__(
        self, pull: Pull, answer: Answer, gives_up: Callable[[GroupLink], bool], on_done: Callable[[Joint], None]
    ):
        super().__init__(answer, gives_up, on_done)
        self._pull = pull
        self._codes = [int(Code.UNAVAILABLE)] * len(pull.ranges)  # of groups that are not even asked

    def _take(self, part: Part, payload: bytes) -> bool:
        codes, at = read_codes(payload)
        for item, code in zip(part.items, codes, strict=True):
            self._codes[item] = code
        if self._pieces.records >= self._pull.max_messages:
            # Fewer were wanted than there are groups, so each was asked for one, and others were quicker.
            self._give_back(part, Code.OK, payload)
            return False
        return self._pieces.add(payload, at) > 0

    def _refused(self, part: Part, code: int) -> None:
        for item in part.items:
            self._codes[item] = int(code)

    def _joined(self) -> bytes:
        return join_codes(self._codes) + self._pieces.joined()

    def _give_back(self, part: Part, code: int, payload: bytes) -> None:
        if code == Code.OK:
            ranges, count = give_back(payload, read_codes(payload)[1], 0)
            if count:
                part.link.tell(PULL, encode_acks(self._pull.group, self._pull.topics or NO_TOPICS, ranges))


class JointRead(Joint):
    """READ: reports in the order of the positions."""

    op = READ

    def __init__(
        self, positions: int, answer: Answer, gives_up: Callable[[GroupLink], bool], on_done: Callable[[Joint], None]
    ):
        super().__init__(answer, gives_up, on_done)
        away = {"code": int(Code.UNAVAILABLE), "error": AWAY}
        self._reports = [away] * positions

    def _take(self, part: Part, payload: bytes) -> bool:
        reports, at = read_reports(payload)
        for item, report in zip(part.items, reports, strict=True):
            self._reports[item] = report
        return self._pieces.add(payload, at) > 0

    def _refused(self, part: Part, code: int) -> None:
        for item in part.items:
            self._reports[item] = {"code": int(code), "error": AWAY}

    def _joined(self) -> bytes:
        return join_reports(self._reports) + self._pieces.joined()

    def _give_back(self, part: Part, code: int, payload: bytes) -> None:
        """A read leases nothing."""

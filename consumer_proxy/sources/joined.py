"""One question asked of several broker groups, and their answers joined into one.

All groups are asked at once, each for a share of the messages. The first group that has messages ends the waiting of
the others. An isolated group is not waited for while others can be asked. Messages that it leases too late are given
back when its answer arrives.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from common.contract import Code
from common.limited_log import LimitedLog
from consumer_proxy.sources.base import Failure, SourceDown
from consumer_proxy.sources.engine import AWAY, failure
from consumer_proxy.sources.group_link import GroupLink
from engine.client.rpc import LinkDown
from engine.link.codes import AT_BOUND, NO_ROOM
from engine.link.errors import PayloadError
from engine.link.operations import PULL, READ
from engine.link.pieces import JoinedPieces
from engine.link.pull import PullAnswer, PullQuestion, acknowledging, encode_codes
from engine.link.read import ReadAnswer, ReadQuestion, ReadReport

limited = LimitedLog(logging.getLogger("penstock.consumer"))

AnswerT = TypeVar("AnswerT", PullAnswer, ReadAnswer)
GivesUp = Callable[[GroupLink], bool]


class Part:
    """One group's share of the question. `items`: numbers of its acknowledgement ranges or positions."""

    __slots__ = ("answered", "items", "link", "request_id", "waits")

    def __init__(self, link: GroupLink, items: list[int], waits: bool) -> None:
        self.link, self.items, self.waits = link, items, waits
        self.request_id = 0
        self.answered = False


class Joined(ABC, Generic[AnswerT]):
    """An open question.

    Args:
        on_answer: called once with the joined answer, never inside `ask`.
        gives_up: called with a group; whether its answer is not waited for.
        on_done: called with this object after the answer.
    """

    op: int

    def __init__(
        self, on_answer: Callable[[AnswerT | Failure], None], gives_up: GivesUp,
        on_done: Callable[["Joined[AnswerT]"], None],
    ) -> None:  # fmt: skip
        self._on_answer: Callable[[AnswerT | Failure], None] = on_answer
        self._on_done: Callable[[Joined[AnswerT]], None] = on_done
        self._gives_up = gives_up
        self._parts: list[Part] = []
        self._pieces = JoinedPieces()
        self._failure: Failure | None = None
        self._has_answer = self._done = self._withdrawn = False
        self._empty_code = int(Code.OK)

    def ask(self, link: GroupLink, items: list[int], request: bytes, waits: bool) -> bool:
        """Ask a group for its part; False when its link is down."""
        part = Part(link, items, waits)
        try:
            part.request_id = link.send(
                self.op, request, part, lambda code, payload: self._answered(part, code, payload), waits
            )
        except LinkDown:
            return False
        self._parts.append(part)
        return True

    def all_asked(self) -> None:
        """Complete the question: no more groups will be asked. Raises SourceDown when none could be asked."""
        if not self._parts:
            raise SourceDown(AWAY)

    def withdraw(self) -> None:
        """End the waiting of all parts: each is answered at once with the messages it has."""
        self._withdrawn = True
        for part in self._parts:
            if not part.answered and part.waits:
                part.waits = False
                part.link.withdraw(part.request_id, part)

    def settle(self) -> None:
        """Answer when no awaited part is left."""
        open_parts = [part for part in self._parts if not part.answered]
        if self._done or any(not self._gives_up(part.link) for part in open_parts):
            return
        for part in open_parts:
            self._refused(part, Code.TIMEOUT)
        self._done = True
        self._on_done(self)
        if self._has_answer:
            self._on_answer(self._join())
        else:
            self._on_answer(self._failure or Failure(Code.UNAVAILABLE, AWAY))

    def _answered(self, part: Part, code: int, payload: bytes) -> None:
        part.answered = True
        part.link.answered(part)
        if self._done:
            self._give_back_late(part, code, payload)
            return
        if code in (Code.OK, AT_BOUND, NO_ROOM):
            self._empty_code = self._empty_code or code
            try:
                if self._take(part, payload):
                    self.withdraw()
                self._has_answer = True
            except (PayloadError, ValueError) as error:
                limited.error("broker_group=%s: damaged answer: %s", part.link.name, error)
                self._refused(part, Code.UNAVAILABLE)
        else:
            self._failure = self._failure or failure(code, payload)
            self._refused(part, code)
        self.settle()

    def _give_back_late(self, part: Part, code: int, payload: bytes) -> None:
        try:
            self._give_back(part, code, payload)
        except PayloadError as error:
            limited.error("broker_group=%s: damaged answer: %s", part.link.name, error)

    @abstractmethod
    def _take(self, part: Part, payload: bytes) -> bool:
        """Keep a group's answer; returns whether it has messages. Raises PayloadError, ValueError."""

    @abstractmethod
    def _refused(self, part: Part, code: int) -> None:
        """Give the part's items this code."""

    @abstractmethod
    def _join(self) -> AnswerT: ...

    @abstractmethod
    def _give_back(self, part: Part, code: int, payload: bytes) -> None:
        """Handle a late answer."""


class JoinedPull(Joined[PullAnswer]):
    """PULL: codes in the order of the question's ranges, pieces group after group."""

    op = PULL

    def __init__(
        self, question: PullQuestion, on_answer: Callable[[PullAnswer | Failure], None], gives_up: GivesUp,
        on_done: Callable[[Joined[PullAnswer]], None],
    ) -> None:  # fmt: skip
        super().__init__(on_answer, gives_up, on_done)
        self._question = question
        self._codes = [int(Code.UNAVAILABLE)] * len(question.acks)  # for groups that are not asked

    def _take(self, part: Part, payload: bytes) -> bool:
        answer = PullAnswer(payload)
        for item, code in zip(part.items, answer.codes(), strict=True):
            self._codes[item] = code
        if self._pieces.records >= self._question.max_messages:
            # Fewer messages than groups were wanted, so each group was asked for one, and others answered first.
            self._give_back(part, Code.OK, payload)
            return False
        return self._pieces.add(payload, answer.pieces_at) > 0

    def _refused(self, part: Part, code: int) -> None:
        for item in part.items:
            self._codes[item] = int(code)

    def _join(self) -> PullAnswer:
        code = int(Code.OK) if self._pieces.count else self._empty_code
        return PullAnswer(encode_codes(self._codes) + self._pieces.encoded(), code)

    def _give_back(self, part: Part, code: int, payload: bytes) -> None:
        if code == Code.OK:
            acks, count = PullAnswer(payload).give_back()
            if count:
                part.link.tell(PULL, acknowledging(self._question.scope, acks).encode())


class JoinedRead(Joined[ReadAnswer]):
    """READ: reports in the order of the positions."""

    op = READ

    def __init__(
        self, question: ReadQuestion, on_answer: Callable[[ReadAnswer | Failure], None], gives_up: GivesUp,
        on_done: Callable[[Joined[ReadAnswer]], None],
    ) -> None:  # fmt: skip
        super().__init__(on_answer, gives_up, on_done)
        self._reports = [ReadReport(int(Code.UNAVAILABLE), error=AWAY)] * len(question.positions)

    def _take(self, part: Part, payload: bytes) -> bool:
        answer = ReadAnswer.decode(payload)
        for item, report in zip(part.items, answer.reports, strict=True):
            self._reports[item] = report
        return self._pieces.add(payload, answer.pieces_at) > 0

    def _refused(self, part: Part, code: int) -> None:
        for item in part.items:
            self._reports[item] = ReadReport(int(code), error=AWAY)

    def _join(self) -> ReadAnswer:
        return ReadAnswer(self._reports, self._pieces.encoded())

    def _give_back(self, part: Part, code: int, payload: bytes) -> None:
        """Does nothing: a read leases nothing."""

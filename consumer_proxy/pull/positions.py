"""Reads by position: checks the positions of a call, asks the source, assigns its reports to the positions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from common.contract import Code
from common.names import NAME_RULE, is_name
from consumer_proxy.call import Call
from consumer_proxy.errors import Refused
from engine.link.errors import PayloadError
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, ReadReport

_DIVISOR_MAX = 1 << 24


class PositionReport(NamedTuple):
    """The report on one position of a call; None until the source gives it."""

    topic: str
    queue: int
    report: ReadReport | None


class PositionPull:
    """The positions of one pull.

    Args:
        positions: the contract's Position structs.
        find_topic: the stored name and the number of queues of a topic; raises Refused.
    Raises:
        Refused: the application may not read one of the topics; the whole pull is refused then.
    """

    def __init__(self, positions: list[Any], find_topic: Callable[[str], tuple[str, int]]) -> None:
        self.application = ""
        self.reports: list[PositionReport] = []
        self._asked: list[ReadPosition] = []
        self._items: list[int] = []  # indexes in `reports` of the positions in `_asked`
        self._divisor = 1
        for position in positions:
            found = _checked(position, find_topic)
            report = None
            if isinstance(found, Refused):
                report = ReadReport(int(found.code), error=found.sentence)
            else:
                self._items.append(len(self.reports))
                self._asked.append(found)
            self.reports.append(PositionReport(position.topic, position.queue, report))

    @property
    def asks(self) -> bool:
        """Whether the source must be asked for any position."""
        return bool(self._asked)

    @property
    def topics(self) -> set[str]:
        """Names of the topics that are read."""
        return {self.reports[item].topic for item in self._items}

    def question(self, call: Call) -> ReadQuestion:
        """The question for the source."""
        return ReadQuestion(self._asked, call.max_messages, max(1, call.max_bytes // self._divisor), call.wait_ms)

    def ask_for_less(self) -> bool:
        """Halve the bytes of the next question; False when a single message is too large."""
        self._divisor *= 2
        return self._divisor <= _DIVISOR_MAX

    def take(self, answer: ReadAnswer) -> None:
        """Assign the source's reports to their positions. Raises PayloadError when their number is wrong."""
        if len(answer.reports) != len(self._items):
            raise PayloadError(f"READ answer: {len(answer.reports)} reports for {len(self._items)} positions")
        for item, asked, report in zip(self._items, self._asked, answer.reports, strict=True):
            self.reports[item] = self.reports[item]._replace(report=_met(asked, report))


def _checked(position: Any, find_topic: Callable[[str], tuple[str, int]]) -> ReadPosition | Refused:
    """The position in the source's form, or the rule that it breaks. Raises Refused with FORBIDDEN."""
    if not isinstance(position.topic, str) or not is_name(position.topic):
        position.topic = position.topic if isinstance(position.topic, str) else ""
        return Refused(Code.INVALID, f"Position.topic: {NAME_RULE}")
    try:
        topic, queues = find_topic(position.topic)
    except Refused as refused:
        if refused.code == Code.FORBIDDEN:
            raise
        return refused
    if not 0 <= position.queue < queues:
        return Refused(Code.INVALID, f"Position.queue: 0 to {queues - 1}")
    if position.offset is not None and position.at_time_ms is not None:
        return Refused(Code.INVALID, "Position: offset and at_time_ms: set one of them")
    if position.offset is not None and position.offset < 0:
        return Refused(Code.INVALID, "Position.offset: not negative")
    if position.end_offset is not None and position.end_offset < 0:
        return Refused(Code.INVALID, "Position.end_offset: not negative")
    if position.at_time_ms is not None and position.at_time_ms < -2:
        return Refused(Code.INVALID, "Position.at_time_ms: Unix milliseconds, -1 for the earliest or -2 for the end")
    return ReadPosition(topic, position.queue, position.offset, position.end_offset, position.at_time_ms)


def _met(asked: ReadPosition, report: ReadReport) -> ReadReport:
    """The report in the client's form. A topic that is defined but unknown to the engine has no messages."""
    if report.code != Code.UNKNOWN_TOPIC:
        return report
    if asked.offset:
        return ReadReport(int(Code.OFFSET_OUT_OF_RANGE), min_offset=0, end_offset=0)
    return ReadReport(int(Code.OK), 0, 0, 0)

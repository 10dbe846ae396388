"""Reads by position: what each one asks, checked, and the reports that answer them."""

import json
import struct
from collections.abc import Callable
from typing import Any

from common.contract import Code
from common.names import NAME_RULE, is_name
from consumer_proxy.errors import Refused
from consumer_proxy.pull.call import Call
from consumer_proxy.pull.layout import DeliverError

Report = dict[str, Any]


class Reading:
    """The positions of one pull.

    Args:
        positions: the contract's Position structs.
        queues_of: the number of queues of a topic; raises Refused.
    Raises:
        Refused: a topic is not allowed to this application: the whole pull is refused then.
    """

    def __init__(self, positions: list[Any], queues_of: Callable[[str], int]):
        self.reports: list[Report | None] = []  # None: the engine answers it
        self._asked: list[Report] = []
        self._places: set[int] = set()  # of what the engine is asked, in `reports`
        self._divisor = 1
        for position in positions:
            fault = _fault(position, queues_of)
            report = {"topic": position.topic, "queue": position.queue}
            if fault is None:
                self._places.add(len(self.reports))
                self.reports.append(None)
                self._asked.append({**report, **_place(position)})
            else:
                self.reports.append({**report, "code": fault.code, "error": fault.sentence})

    @property
    def asks(self) -> bool:
        """Whether anything is left that the engine has to answer."""
        return bool(self._asked)

    def request(self, call: Call) -> bytes:
        """The READ request."""
        max_bytes = max(1, call.max_bytes // self._divisor)
        limits = {"max_messages": call.max_messages, "max_bytes": max_bytes, "wait_ms": call.wait_ms}
        return json.dumps({"positions": self._asked, **limits}).encode()

    def ask_for_less(self) -> bool:
        """Let the next request ask for half the bytes, all reports being open again; False when it is down to one message."""
        self._divisor *= 2
        self.reports = [None if at in self._places else report for at, report in enumerate(self.reports)]
        return self._divisor <= 1 << 24

    def take(self, payload: bytes) -> int:
        """Put the engine's reports in their places; returns where its pieces begin. Raises DeliverError."""
        try:
            (size,) = struct.unpack_from("<I", payload)
            found = json.loads(payload[4 : 4 + size])["reports"]
            answers = iter([_report(asked, answer) for asked, answer in zip(self._asked, found, strict=True)])
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise DeliverError(f"the reports make no sense: {error}") from error
        self.reports = [next(answers) if report is None else report for report in self.reports]
        return 4 + size


def _fault(position: Any, queues_of: Callable[[str], int]) -> Refused | None:
    if not isinstance(position.topic, str) or not is_name(position.topic):
        position.topic = position.topic if isinstance(position.topic, str) else ""
        return Refused(Code.INVALID, f"Position.topic: {NAME_RULE}")
    try:
        queues = queues_of(position.topic)
    except Refused as refused:
        if refused.code == Code.FORBIDDEN:
            raise
        return refused
    if not 0 <= position.queue < queues:
        return Refused(Code.INVALID, f"Position.queue: 0 to {queues - 1}")
    if position.offset is not None and position.offset < 0:
        return Refused(Code.INVALID, "Position.offset: not negative")
    if position.end_offset is not None and position.end_offset < 0:
        return Refused(Code.INVALID, "Position.end_offset: not negative")
    if position.at_time_ms is not None and position.at_time_ms < -2:
        return Refused(Code.INVALID, "Position.at_time_ms: Unix milliseconds, -1 for the earliest or -2 for the end")
    return None


def _place(position: Any) -> Report:
    """The optional fields that are set. An offset wins over a time, as the contract says."""
    found = {"offset": position.offset, "end_offset": position.end_offset}
    if position.offset is None:
        found["at_time_ms"] = position.at_time_ms
    return {name: value for name, value in found.items() if value is not None}


def _report(asked: Report, answer: Report) -> Report:
    where = {"topic": asked["topic"], "queue": asked["queue"]}
    if answer["code"] != Code.UNKNOWN_TOPIC:
        return {**answer, **where}
    # It is defined, or the engine would not have been asked: the engine has just not met its first message yet.
    if asked.get("offset", 0) > 0:
        return {**where, "code": Code.OFFSET_OUT_OF_RANGE, "min_offset": 0, "end_offset": 0}
    return {**where, "code": Code.OK, "next_offset": 0, "min_offset": 0, "end_offset": 0}

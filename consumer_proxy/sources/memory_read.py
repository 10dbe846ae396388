"""A read by position from a MemoryBroker, answered when there are records or a report."""

from common.memory_broker import MemoryBroker
from consumer_proxy.sources.base import OnRead
from engine.link.codes import INVALID, OFFSET_OUT_OF_RANGE, OK, UNKNOWN_TOPIC
from engine.link.pieces import AnswerPiece
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, ReadReport
from engine.link.receipt import NO_TOKEN

EARLIEST_MS, END_MS = -1, -2
"""Times that stand for the earliest record and for the end."""

_BYTES_MAX = 1 << 20


class WaitingRead:
    """A question and its positions as offsets, which are resolved once, when it arrives.

    Attributes:
        until_ms: time at which it is answered even without records; 0: at once.
    """

    def __init__(self, broker: MemoryBroker, question: ReadQuestion, until_ms: int, on_read: OnRead) -> None:
        self._broker, self._question = broker, question
        self.until_ms, self.on_read = until_ms, on_read
        self._offsets = [_offset(broker, position) for position in question.positions]

    def try_answer(self, now_ms: int) -> ReadAnswer | None:
        """The answer; None while there are no records and time is left."""
        reports: list[ReadReport] = []
        pieces: list[AnswerPiece] = []
        question = self._question
        left, left_bytes = question.max_messages, question.max_bytes if question.max_bytes > 0 else _BYTES_MAX
        can_grow = False
        positions = list(zip(question.positions, self._offsets, strict=True))
        for index, (position, offset) in enumerate(positions):
            report = _report(self._broker, position, offset)
            if report.code == OK and offset is not None:
                # Each position gets its share of the rest, so that the first one does not take all of it.
                others = len(positions) - index
                found = self._read(position, offset, -(-left // others), -(-left_bytes // others))
                pieces += found
                taken = sum(piece.count for piece in found)
                left -= taken
                left_bytes -= sum(len(piece.records) for piece in found)
                report = report._replace(next_offset=offset + taken)
                can_grow = can_grow or position.end_offset is None or offset < position.end_offset
            reports.append(report)
        is_final = bool(pieces) or not can_grow or question.max_messages <= 0 or self.until_ms <= now_ms
        if is_final or any(report.code != OK for report in reports):
            return ReadAnswer.of(reports, pieces)
        return None

    def _read(self, position: ReadPosition, offset: int, max_messages: int, max_bytes: int) -> list[AnswerPiece]:
        if position.end_offset is not None:
            max_messages = min(max_messages, position.end_offset - offset)
        pieces, size = [], 0
        for at, stored_at_ms, record in self._broker.read(position.topic, position.queue, offset, max(0, max_messages)):
            if max_bytes <= 0 or (size and size + len(record) > max_bytes):
                break
            size += len(record)
            pieces.append(AnswerPiece(NO_TOKEN, at, 0, position.queue, 1, 0, stored_at_ms, record))
        return pieces


def _offset(broker: MemoryBroker, position: ReadPosition) -> int | None:
    """The first offset to read; None when only a report is wanted, or when the queue does not exist."""
    if position.offset is not None or position.at_time_ms is None:
        return position.offset
    if not 0 <= position.queue < (broker.queues(position.topic) or 0):
        return None
    if position.at_time_ms == EARLIEST_MS:
        return 0
    if position.at_time_ms == END_MS:
        return broker.end_offset(position.topic, position.queue)
    return broker.offset_at_time(position.topic, position.queue, position.at_time_ms)


def _report(broker: MemoryBroker, position: ReadPosition, offset: int | None) -> ReadReport:
    queues = broker.queues(position.topic)
    if queues is None:
        return ReadReport(UNKNOWN_TOPIC, error="there is no such topic")
    if not 0 <= position.queue < queues:
        return ReadReport(INVALID, error=f"queue {position.queue}: 0 to {queues - 1}")
    end = broker.end_offset(position.topic, position.queue)
    if offset is not None and not 0 <= offset <= end:
        return ReadReport(OFFSET_OUT_OF_RANGE, offset, 0, end, f"offset {offset} is outside 0..{end}")
    return ReadReport(OK, offset, 0, end)

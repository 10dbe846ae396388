"""Reads the engine's side of a comparison: rows of a topic's queues between offsets, and single messages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.client.admin import AdminError
from engine.client.copied import CopyLink
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK, TIMEOUT
from engine.link.operations import READ
from engine.link.pieces import AnswerPiece
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, ReadReport
from engine.link.record import StoredRecord, read_record
from migration.reconcile.spans import ReadRange

PAGE_RECORDS, PAGE_BYTES = 20_000, 4 << 20
EMPTY_PAGES_MAX = 15
"""Maximum number of consecutive empty answers while old records are fetched; the engine waits up to 2 s for each."""


class QueueReport(NamedTuple):
    """First and end offset of a queue, and the offset at the time that was asked for; else 0."""

    first: int
    end: int
    next: int = 0


def queue_reports(
    link: CopyLink, stored: str, queues: Sequence[int], at_time_ms: int | None = None
) -> dict[int, QueueReport]:
    """Ask for the bounds of queues. Raises AdminError, OSError."""
    asked = [ReadPosition(stored, queue, at_time_ms=at_time_ms) for queue in queues]
    reports = _read(link, ReadQuestion(asked, 0)).reports
    found = {}
    for queue, report in zip(queues, reports, strict=True):
        if report.code != OK:
            raise AdminError(report.code, report.error or f"topic={stored} queue={queue}: READ")
        found[queue] = QueueReport(report.min_offset or 0, report.end_offset or 0, report.next_offset or 0)
    return found


def stored_at(link: CopyLink, stored: str, queue: int, offset: int) -> int | None:
    """When the message at that offset was stored, in ms since 1970; None: there is none."""
    answer = _read(link, ReadQuestion([ReadPosition(stored, queue, offset=offset)], 1))
    return next((piece.stored_at_ms for piece in answer.pieces()), None)


def message_at(link: CopyLink, stored: str, queue: int, offset: int) -> tuple[StoredRecord, int] | None:
    """One record and when it was stored; None: retention has deleted it. Raises AdminError, OSError, PayloadError."""
    for piece in _read(link, ReadQuestion([ReadPosition(stored, queue, offset=offset)], 1)).pieces():
        if piece.first_offset == offset:
            return read_record(piece.records, 0)[0], piece.stored_at_ms
    return None


def pieces(link: CopyLink, stored: str, ranges: Mapping[int, ReadRange]) -> Iterator[AnswerPiece]:
    """The records of queues between offsets, of all queues in turns; what retention deletes meanwhile is left out.

    Raises:
        AdminError: the engine refused, or is still fetching old records. OSError, PayloadError.
    """
    positions = {queue: each.first for queue, each in ranges.items() if each.first < each.end}
    empty = 0
    while positions:
        asked = [ReadPosition(stored, queue, at, ranges[queue].end) for queue, at in positions.items()]
        answer = _read(link, ReadQuestion(asked, PAGE_RECORDS, PAGE_BYTES))
        before = dict(positions)
        for piece in answer.pieces():
            yield piece
            positions[piece.queue] = piece.first_offset + piece.count
        for position, report in zip(asked, answer.reports, strict=True):
            _follow(positions, position, report)
        positions = {queue: at for queue, at in positions.items() if at < ranges[queue].end}
        empty = empty + 1 if positions == before else 0
        if empty > EMPTY_PAGES_MAX:
            raise AdminError(TIMEOUT, f"topic={stored} queues {[*positions]}: no records yet: try again later")


def _follow(positions: dict[int, int], position: ReadPosition, report: ReadReport) -> None:
    """Move a position that retention has passed to the first record that is left."""
    if report.code == OK:
        return
    first = report.min_offset
    if report.code != OFFSET_OUT_OF_RANGE or first is None or first <= positions[position.queue]:
        raise AdminError(report.code, report.error or f"topic={position.topic} queue={position.queue}: READ")
    positions[position.queue] = first


def _read(link: CopyLink, question: ReadQuestion) -> ReadAnswer:
    code, payload = link.call(READ, question.encode())
    if code != OK:
        raise AdminError(code, payload.decode("utf-8", "replace"))
    return ReadAnswer.decode(payload)

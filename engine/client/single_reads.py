"""Reads single messages of an engine's queues by their offsets."""

from collections.abc import Mapping
from typing import NamedTuple

from engine.client.admin import AdminError
from engine.client.copied import CopyLink
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK, TIMEOUT
from engine.link.operations import READ
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import StoredRecord, read_record

WAIT_MS = 5_000
"""How long the engine may need to fetch old records."""


class MessageAt(NamedTuple):
    """What a queue has at an offset.

    Attributes:
        record: None: there is no message.
        is_deleted: retention has deleted what was there. Without it and without a record the queue ends below the offset.
    """

    record: StoredRecord | None
    is_deleted: bool = False


def messages_at(link: CopyLink, stored: str, offsets: Mapping[int, int]) -> dict[int, MessageAt]:
    """The message at one offset of each queue, in one request. Raises AdminError, OSError, LinkError, PayloadError."""
    if not offsets:
        return {}
    asked = [ReadPosition(stored, queue, at, at + 1) for queue, at in offsets.items()]
    code, payload = link.call(READ, ReadQuestion(asked, len(asked)).encode())
    if code != OK:
        raise AdminError(code, payload.decode("utf-8", "replace"))
    answer = ReadAnswer.decode(payload)
    found = {
        piece.queue: MessageAt(read_record(piece.records, 0)[0])
        for piece in answer.pieces()
        if piece.first_offset == offsets[piece.queue]
    }
    for position, report in zip(asked, answer.reports, strict=True):
        queue, at = position.queue, offsets[position.queue]
        if queue in found:
            continue
        if report.code not in (OK, OFFSET_OUT_OF_RANGE):
            raise AdminError(report.code, report.error or f"topic={stored} queue={queue}: READ")
        if (report.min_offset or 0) > at:
            found[queue] = MessageAt(None, is_deleted=True)
        elif at >= (report.end_offset or 0):
            found[queue] = MessageAt(None)
        else:
            raise AdminError(TIMEOUT, f"topic={stored} queue={queue}: the message at {at} is not read yet")
    return found

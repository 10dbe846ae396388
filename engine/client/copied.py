"""Copies records of a foreign source into a topic, and searches its offsets: blocking, over one link. Needs no gevent.

Design: docs/design/0036-copied-batches.md.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from engine.client.admin import AdminError
from engine.link.append import FSYNC
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK, TIMEOUT
from engine.link.copy import (
    Copied,
    CopyPart,
    ForeignSource,
    QueueSource,
    SourceState,
    decode_copied,
    decode_states,
    encode_accept,
    encode_copy,
    encode_state_question,
)
from engine.link.operations import COPY, READ, SOURCE_ACCEPT, SOURCE_STATE
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import read_record

PAGE_RECORDS, PAGE_BYTES = 500, 1 << 20
EMPTY_PAGES_MAX = 15
"""Maximum number of consecutive empty answers while old records are fetched; the engine waits up to 2 s for each."""


class CopyLink(Protocol):
    """An AdminClient, or an object with the same method."""

    def call(self, op: int, payload: bytes) -> tuple[int, bytes]: ...


class CopiedPlace(NamedTuple):
    """A copied record.

    Attributes:
        offset: in the queue.
        number: of the source that it was copied from.
        source_offset: in that source.
    """

    offset: int
    number: int
    source_offset: int


def states(link: CopyLink, queues: Sequence[tuple[str, int]]) -> list[SourceState]:
    """How far the sources of these (topic, queue) are copied. Raises AdminError, OSError."""
    return decode_states(_asked(link, SOURCE_STATE, encode_state_question(queues)))


def accept(
    link: CopyLink, topic: str, queue: int, source: ForeignSource, *, start: int, replaces: int, reason: str,
    durability: int = FSYNC, next_offset: int | None = None,
) -> SourceState:  # fmt: skip
    """Make it the queue's source; as durable as asked on return. May be repeated after a lost answer.

    Args:
        start: the first offset to copy.
        replaces: number of the queue's present source; 0: it has none.
        next_offset: the queue's present next offset; None: whatever it is.
    Raises:
        AdminError: with code SOURCE_MOVED when the queue's source has another number, or another next offset.
    """
    payload = encode_accept(durability, topic, queue, source, start, replaces, reason, next_offset)
    (state,) = decode_states(_asked(link, SOURCE_ACCEPT, payload))
    return state


def copy(link: CopyLink, durability: int, parts: Sequence[CopyPart]) -> list[Copied]:
    """Store the parts; returns the outcome of each. As durable as asked on return.

    After an error or a lost link the caller asks for the states: what it sent may be stored or not.

    Raises:
        AdminError: nothing is stored. OSError.
    """
    return decode_copied(_asked(link, COPY, encode_copy(durability, parts)), len(parts))


def source_offset_at(link: CopyLink, topic: str, queue: int, offset: int) -> CopiedPlace | None:
    """Where the queue's message at that offset comes from; None: it was not copied, or is gone. Raises AdminError."""
    (state,) = states(link, [(topic, queue)])
    found = _first_copied(link, topic, queue, offset, offset + 1)
    if found is None:
        return None
    return CopiedPlace(offset, max(each.number for each in state.sources if each.first <= offset), found[1])


def engine_offset_of(
    link: CopyLink, topic: str, queue: int, source_offset: int, number: int | None = None
) -> CopiedPlace | None:
    """The first copied record at or above an offset of a source; None: there is none yet.

    Source offsets grow with engine offsets, so the range of the source's records is halved; where messages lie between
    that were not copied, the next copied one decides. Records that retention has deleted count as lower.

    Args:
        number: of the source; None: the queue's present one, and those with its identity, oldest first: it was accepted
            several times where a copy went on at another offset.
    Raises:
        AdminError: the engine refused, or is still fetching old records.
    """
    (state,) = states(link, [(topic, queue)])
    for each in state.sources:
        if each.number == number or (number is None and each.source == state.source):
            found = _first_at(link, topic, queue, source_offset, state, each)
            if found is not None:
                return found
    return None


def _first_at(
    link: CopyLink, topic: str, queue: int, source_offset: int, state: SourceState, source: QueueSource
) -> CopiedPlace | None:
    """The first record of one accepted source at or above an offset of it."""
    later = [each.first for each in state.sources if each.number > source.number]
    low, end = source.first, min(later, default=state.end)
    best, high = None, end
    while low < high:
        middle = (low + high) // 2
        found = _first_copied(link, topic, queue, middle, end)
        if found is None or found[1] >= source_offset:
            best, high = (found if found is not None else best), middle
        else:
            low = found[0] + 1
    return None if best is None else CopiedPlace(best[0], source.number, best[1])


def _first_copied(link: CopyLink, topic: str, queue: int, offset: int, end: int) -> tuple[int, int] | None:
    """(offset, source offset) of the first copied record from an offset on, before `end`."""
    empty = 0
    while offset < end:
        count = min(PAGE_RECORDS, end - offset) if empty else 1
        position = ReadPosition(topic, queue, offset=offset)
        answer = ReadAnswer.decode(_asked(link, READ, ReadQuestion([position], count, PAGE_BYTES).encode()))
        (report,) = answer.reports
        if report.code not in (OK, OFFSET_OUT_OF_RANGE):
            raise AdminError(report.code, report.error or "")
        for piece in answer.pieces():
            at = 0
            for number in range(piece.count):
                record, at = read_record(piece.records, at)
                if record.source_offset is not None and piece.first_offset + number < end:
                    return piece.first_offset + number, record.source_offset
        following = report.min_offset if report.code == OFFSET_OUT_OF_RANGE else report.next_offset
        if following is None or following < offset:
            return None
        empty = empty + 1 if following == offset else 1
        if empty > EMPTY_PAGES_MAX:
            raise AdminError(TIMEOUT, f"topic={topic} queue={queue} offset={offset}: no record yet: try again later")
        offset = following
    return None


def _asked(link: CopyLink, op: int, payload: bytes) -> bytes:
    code, answer = link.call(op, payload)
    if code != OK:
        raise AdminError(code, answer.decode("utf-8", "replace"))
    return answer

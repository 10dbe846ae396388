"""Ids that one side of a dual write lacks, as a repair journal knows them, per topic and queue; read without its lock."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.disk import dead
from producer_proxy.buffer.disk.segment import bases
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode
from producer_proxy.journal import mapped, missed
from producer_proxy.journal.contents import shown_id
from producer_proxy.journal.missed import MissedRange
from producer_proxy.journal.segment import JournalSegment

UNDERWAY_MS = 2_000
"""A younger intent may be on its way to both sides, and says nothing yet."""


class DivergentQueue(NamedTuple):
    """Ids of one queue that the primary has and the secondary lacks.

    Attributes:
        queue: None: whether and where the primary has them is not known yet.
        ids: as senders see them, in the order of their intents.
    """

    topic: str
    queue: int | None
    ids: tuple[str, ...]


class RefusedCopy(NamedTuple):
    """A message that the primary has and the secondary will never take."""

    topic: str
    id: str
    reason: str


class Divergence(NamedTuple):
    """
    Attributes:
        damaged: entries or ranges of bytes that cannot be read: they have to be compared as `ranges` are.
    """

    queues: tuple[DivergentQueue, ...]
    refused: tuple[RefusedCopy, ...]
    ranges: tuple[MissedRange, ...]
    damaged: int

    @property
    def is_empty(self) -> bool:
        """Whether both sides have the same messages, as far as the journal knows."""
        return not (self.queues or self.refused or self.ranges or self.damaged)


def divergence(directory: Path, now_ms: int | None = None, underway_ms: int = UNDERWAY_MS) -> Divergence:
    """Read the journal of one proxy, whether the proxy runs or not. Blocks; reads every segment.

    Args:
        now_ms: Unix ms; None: now.
        underway_ms: 0 for a proxy that is stopped.
    Raises:
        OSError: the directory cannot be read.
    """
    before_ms = (int(time.time() * 1000) if now_ms is None else now_ms) - underway_ms
    found: dict[tuple[str, int | None], list[str]] = {}
    damaged = 0
    for entry, queue in _waiting(directory):
        if entry is None:
            damaged += 1
        elif entry.accepted_at_ms <= before_ms:
            found.setdefault((entry.topic, queue), []).append(shown_id(entry))
    queues = tuple(
        DivergentQueue(topic, queue, tuple(ids))
        for (topic, queue), ids in sorted(
            found.items(), key=lambda each: (each[0][0], -1 if each[0][1] is None else each[0][1])
        )
    )
    refused = tuple(RefusedCopy(each.entry.topic, shown_id(each.entry), each.reason) for each in dead.read(directory))
    return Divergence(queues, refused, tuple(missed.read(directory / "missed")[1]), damaged)


def _waiting(directory: Path) -> Iterator[tuple[BufferEntry | None, int | None]]:
    """The entries that are not done, with their queues at the primary; None for what is damaged."""
    for base in bases(directory):
        segment = JournalSegment(directory, base)
        try:
            queues = segment.stored()
            for found in segment.scan():
                if isinstance(found, Block):
                    yield _decoded(found.payload), queues.get(found.offset)
                elif not found.torn:
                    yield None, None
        except FileNotFoundError:  # its last entry was done meanwhile
            continue
        finally:
            segment.close()
    for payload in mapped.left(directory):
        yield _decoded(payload), None


def _decoded(payload: bytes) -> BufferEntry | None:
    try:
        return decode(payload)
    except EntryError:
        return None

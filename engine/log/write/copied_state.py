"""Sources of copied records: what the log says of them, as keys and values of progress. Design: docs/design/0036-copied-batches.md.

A queue's sources are numbered from 1, in the order in which they were accepted; the newest one is its source.

    b"\\0source" ‖ u32 topic id ‖ u32 queue ‖ u32 number, big-endian → a SourceRecord
    b"\\0copied" ‖ u32 topic id ‖ u32 queue, big-endian → u32 number ‖ u64 next ‖ u64 end, little-endian

The value of the second key is also what a copied batch says by itself, so a batch in the log replaces it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from engine.link.copy import IDENTITY_SIZE_MAX, ForeignSource
from engine.log.format import BATCH_HEADER, FLAG_COPIED, KIND_MESSAGES, SOURCE_OFFSET_SIZE
from engine.log.view import View, after_prefix

SOURCE_PREFIX, COPIED_PREFIX = b"\0source", b"\0copied"
_QUEUE, _NUMBERED = struct.Struct(">II"), struct.Struct(">III")
_STATE = struct.Struct("<IQQ")
_SOURCE = struct.Struct("<IQQqB")


class CopiedState(NamedTuple):
    """How far a queue's source is copied.

    Attributes:
        number: of the source.
        next: the offset after the last copied record, in the source.
        end: the offset after the last copied record, in the queue.
    """

    number: int
    next: int
    end: int

    def encode(self) -> bytes:
        """The value of progress."""
        return _STATE.pack(*self)


class SourceRecord(NamedTuple):
    """A source as it was accepted for a queue.

    Attributes:
        number: of the source in its queue.
        start: its first offset that was to be copied.
        first: the queue's end at that time: its copied records lie from here on, up to `first` of the next source.
        accepted_ms: Unix time.
        reason: a sentence of who accepted it.
    """

    number: int
    source: ForeignSource
    start: int
    first: int
    accepted_ms: int
    reason: str

    def encode(self) -> bytes:
        """The value of progress."""
        source = self.source
        head = _SOURCE.pack(source.partition, self.start, self.first, self.accepted_ms, len(source.identity))
        return head + source.identity + self.reason.encode()

    @classmethod
    def decode(cls, number: int, value: bytes) -> "SourceRecord":
        """The record of that number."""
        partition, start, first, accepted_ms, size = _SOURCE.unpack_from(value)
        assert size <= IDENTITY_SIZE_MAX
        identity, reason = value[_SOURCE.size :][:size], value[_SOURCE.size + size :]
        return cls(number, ForeignSource(identity, partition), start, first, accepted_ms, reason.decode())


def copied_key(topic_id: int, queue: int) -> bytes:
    """Key of progress of a queue's state."""
    return COPIED_PREFIX + _QUEUE.pack(topic_id, queue)


def source_key(topic_id: int, queue: int, number: int) -> bytes:
    """Key of progress of a source."""
    return SOURCE_PREFIX + _NUMBERED.pack(topic_id, queue, number)


def is_copied(batch: bytes | memoryview) -> bool:
    """Whether a batch that verifies holds copied records."""
    return bool(batch[11] & FLAG_COPIED) and batch[10] == KIND_MESSAGES


def queue_of_batch(batch: bytes | memoryview) -> tuple[int, int]:
    """(topic id, queue) of a batch, by its header."""
    topic_id, queue = BATCH_HEADER.unpack_from(batch)[6:8]
    return topic_id, queue


def state_after(batch: bytes | memoryview) -> tuple[bytes, CopiedState]:
    """(key, state) of the queue once a copied batch is stored. Its header and its last 8 bytes are enough.

    The last record's trailer ends the batch, so those are its source offset.
    """
    _, _, _, _, _, _, topic_id, queue, count, number, base_offset, _ = BATCH_HEADER.unpack_from(batch)
    last = int.from_bytes(batch[-SOURCE_OFFSET_SIZE:], "little")
    return copied_key(topic_id, queue), CopiedState(number, last + 1, base_offset + count)


def take_copied(view: View, batch: bytes | memoryview) -> None:
    """Put the state after a copied batch of the log into the view, unless that knows a later one."""
    key, state = state_after(batch)
    known = view.get(b"p" + key)
    if not known or state[:2] > _STATE.unpack(known)[:2]:
        view.put(b"p" + key, state.encode())


def copied_state(view: View, topic_id: int, queue: int) -> CopiedState | None:
    """The queue's state as the view has it; None: no source was accepted for it."""
    value = view.get(b"p" + copied_key(topic_id, queue))
    return CopiedState(*_STATE.unpack(value)) if value else None


def source_records(view: View, topic_id: int, queue: int) -> list[SourceRecord]:
    """All sources of the queue, oldest first."""
    prefix = b"p" + SOURCE_PREFIX + _QUEUE.pack(topic_id, queue)
    return [
        SourceRecord.decode(int.from_bytes(key[len(prefix) :], "big"), value)
        for key, value in view.scan(prefix, after_prefix(prefix))
    ]


def queues_with_sources(view: View, after: bytes = b"") -> Iterator[tuple[bytes, int, int]]:
    """(key of the view, topic id, queue) of all queues for which a source was accepted, from after a key on."""
    prefix = b"p" + SOURCE_PREFIX
    previous = None
    for key, _ in view.scan(after + b"\0" if after else prefix, after_prefix(prefix)):
        topic_id, queue, _ = _NUMBERED.unpack(key[len(prefix) :])
        if (topic_id, queue) != previous:
            previous = topic_id, queue
            yield key, topic_id, queue

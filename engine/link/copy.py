"""COPY, SOURCE_STATE and SOURCE_ACCEPT: records of a foreign source. See docs/design/0036-copied-batches.md.

COPY has a head and parts. Each part is a source, padded to a multiple of 8, and a batch as `encode_copied_batch` makes
it. The answer has one result per part, then the log's end, as APPEND's.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from engine.link.append import APPEND_END, APPEND_HEAD
from engine.link.batch import BATCH_HEADER_SIZE
from engine.link.errors import PayloadError

IDENTITY_SIZE_MAX = 64
REASON_BYTES_MAX = 1024
OFFSET_END = 0xFFFFFFFFFFFFFFFF
"""Above every offset of a source."""

QUEUES_PER_REQUEST_MAX = 10_000
COPY_RESULT = struct.Struct("<HxxIQQ")
"""Code ‖ number of the queue's source, 0: it has none ‖ its next offset ‖ engine offset of the first record, if stored."""

_SOURCE = struct.Struct("<IB3xQ")
"""Partition ‖ size of the identity ‖ the queue's next offset as the copier knows it."""


class ForeignSource(NamedTuple):
    """A partition of a foreign log.

    Attributes:
        identity: 1 to 64 bytes that name the log for ever: one that was made again has others.
    """

    identity: bytes
    partition: int


class CopyPart(NamedTuple):
    """Records of one queue.

    Attributes:
        next: the queue's next offset in the source, as the copier knows it. The records follow it in the source.
        batch: as `encode_copied_batch` makes it.
    """

    source: ForeignSource
    next: int
    batch: bytes

    @property
    def topic_id(self) -> int:
        """The batch's topic."""
        return int.from_bytes(self.batch[16:20], "little")


class Copied(NamedTuple):
    """The outcome of a part.

    Attributes:
        code: OK; SOURCE_MOVED: the queue has another source, or another next offset than the part says.
        number: of the queue's source; 0: it has none, or the engine did not say.
        next: the queue's next offset in the source, after this part.
        first_offset: of the part's first record in the queue, if the part is stored.
    """

    code: int
    number: int
    next: int
    first_offset: int


class QueueSource(NamedTuple):
    """A source as it was accepted for a queue; fields as in `engine.log.write.copied_state.SourceRecord`."""

    number: int
    source: ForeignSource
    start: int
    first: int
    accepted_ms: int
    reason: str


class SourceState(NamedTuple):
    """What an engine knows of a queue's sources.

    Attributes:
        topic_id: of the topic, for batches.
        number: of the queue's source; 0: none was accepted.
        next: the offset after the last copied record, in the source.
        end: the offset after the last copied record, in the queue.
        sources: all of them, oldest first.
    """

    topic_id: int
    number: int
    next: int
    end: int
    sources: list[QueueSource]

    @property
    def source(self) -> ForeignSource | None:
        """The queue's source."""
        return next((each.source for each in self.sources if each.number == self.number), None)


def encode_copy(durability: int, parts: Sequence[CopyPart]) -> bytes:
    """Encode a COPY request."""
    return APPEND_HEAD.pack(durability, len(parts)) + b"".join(_part(*part) for part in parts)


def _part(source: ForeignSource, next_offset: int, batch: bytes) -> bytes:
    identity, partition = source
    padding = bytes(-len(identity) % 8)
    return _SOURCE.pack(partition, len(identity), next_offset) + identity + padding + batch


def decode_parts(payload: bytes, count: int) -> Iterator[CopyPart]:
    """The parts of a COPY, their batches without padding. Raises PayloadError."""
    at = APPEND_HEAD.size
    for number in range(count):
        if at + _SOURCE.size + BATCH_HEADER_SIZE > len(payload):
            raise PayloadError(f"COPY: part {number} of {count}: runs past byte {len(payload)}")
        partition, size, next_offset = _SOURCE.unpack_from(payload, at)
        if not 1 <= size <= IDENTITY_SIZE_MAX:
            raise PayloadError(f"COPY: part {number}: identity of {size} bytes: use 1 to {IDENTITY_SIZE_MAX}")
        at += _SOURCE.size
        source = ForeignSource(payload[at : at + size], partition)
        at += size + -size % 8
        batch_size = int.from_bytes(payload[at + 4 : at + 8], "little")
        if not BATCH_HEADER_SIZE < batch_size <= len(payload) - at:
            raise PayloadError(f"COPY: part {number}: batch of {batch_size} bytes runs past byte {len(payload)}")
        yield CopyPart(source, next_offset, payload[at : at + batch_size])
        at += batch_size + -batch_size % 8
    if at < len(payload):
        raise PayloadError(f"COPY: {len(payload) - at} bytes after the last part")


def encode_copied(results: Iterable[Copied], end: int) -> bytes:
    """Encode the answer. `end`: of the log."""
    return b"".join(COPY_RESULT.pack(*each) for each in results) + APPEND_END.pack(end)


def decode_copied(payload: bytes, count: int) -> list[Copied]:
    """The outcome of each part. Raises PayloadError."""
    if len(payload) != COPY_RESULT.size * count + APPEND_END.size:
        raise PayloadError(f"COPY: an answer of {len(payload)} bytes for {count} parts")
    return [Copied(*each) for each in COPY_RESULT.iter_unpack(payload[: -APPEND_END.size])]


def encode_state_question(queues: Iterable[tuple[str, int]]) -> bytes:
    """Encode a SOURCE_STATE of (topic, queue)."""
    return json.dumps({"queues": list(queues)}).encode()


def encode_accept(
    durability: int, topic: str, queue: int, source: ForeignSource, start: int, replaces: int, reason: str,
    next_offset: int | None = None,
) -> bytes:  # fmt: skip
    """Encode a SOURCE_ACCEPT.

    Args:
        replaces: number of the source that it replaces; 0: the queue has none.
        next_offset: the next offset that the queue must have; None: any.
    """
    asked = {
        "durability": durability, "topic": topic, "queue": queue, "identity": source.identity.hex(),
        "partition": source.partition, "start": start, "replaces": replaces, "reason": reason,
    }  # fmt: skip
    if next_offset is not None:
        asked["next"] = next_offset
    return json.dumps(asked).encode()


def shown_state(state: SourceState) -> dict[str, Any]:
    """A state as it lies in the JSON of an answer."""
    return {
        "topic_id": state.topic_id, "number": state.number, "next": state.next, "end": state.end,
        "sources": [
            {**each._asdict(), "source": [each.source.identity.hex(), each.source.partition]} for each in state.sources
        ],
    }  # fmt: skip


def decode_states(payload: bytes) -> list[SourceState]:
    """The states in an answer to SOURCE_STATE or SOURCE_ACCEPT. Raises PayloadError."""
    try:
        return [_state(each) for each in json.loads(payload)["states"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PayloadError("SOURCE_STATE: the answer is no list of states") from None


def _state(given: dict[str, Any]) -> SourceState:
    sources = []
    for each in given["sources"]:
        identity, partition = each["source"]
        sources.append(QueueSource(**{**each, "source": ForeignSource(bytes.fromhex(identity), partition)}))
    return SourceState(given["topic_id"], given["number"], given["next"], given["end"], sources)

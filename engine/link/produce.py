"""PRODUCE: messages for a Kafka cluster, which a proxy sends to its Kafka bridge (docs/design/0034-kafka.md).

Little-endian. The request:

    u32 patience in ms ‖ u32 messages ‖ u16 topics ‖ 2 unused ‖ the cluster's name ‖ the topics' names, each u16 size ‖
    bytes; then each message: u32 index of its topic ‖ i32 partition ‖ u32 size ‖ u8 flags ‖ 3 unused ‖
    [16 bytes of assigned id] ‖ the message in Thrift binary

The answer has 16 bytes per message: u16 code ‖ 2 unused ‖ u32 partition ‖ i64 Kafka offset, −1 where it is not stored;
then a JSON object with the sentences of refusals by index, if there are any. Names and not numbers: no request depends
on an earlier one, so neither end has to notice that the other has started again.
"""

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from common.ids import ID_SIZE
from engine.link.errors import PayloadError

PRODUCE_HEAD = struct.Struct("<IIHxx")
PRODUCE_NAME = struct.Struct("<H")
PRODUCE_MESSAGE = struct.Struct("<IiIB3x")
PRODUCE_RESULT = struct.Struct("<HxxIq")
PRODUCE_HAS_ID = 1
ANY_PARTITION = -1
RESERVED_PREFIX = "penstock-"
"""Properties whose names begin with it are INVALID on a Kafka home: the bridge's own headers have such names."""


class ProducedMessage(NamedTuple):
    """One message of PRODUCE.

    Attributes:
        topic: index of its name in the request.
        partition: ANY_PARTITION: the bridge chooses one by the key.
        assigned_id: None: the message has its own id.
        encoded: the message in Thrift binary.
    """

    topic: int
    partition: int
    assigned_id: bytes | None
    encoded: bytes


class ProduceRequest(NamedTuple):
    """Attributes: patience_ms: after it, what was not yet handed to Kafka's client is UNAVAILABLE."""

    cluster: str
    topics: list[str]
    patience_ms: int
    messages: list[ProducedMessage]


class ProduceHead(NamedTuple):
    """What precedes the messages. Attributes: message_count: of them; at: position of the first one."""

    cluster: str
    topics: list[str]
    patience_ms: int
    message_count: int
    at: int


class ProducedResult(NamedTuple):
    """The result of one message; `sentence` is empty where the code says all."""

    code: int
    partition: int
    offset: int
    sentence: str = ""


def encode_produce(cluster: str, topics: Sequence[str], patience_ms: int, messages: Iterable[ProducedMessage]) -> bytes:
    """Encode a request."""
    parts: list[bytes] = []
    for name in (cluster, *topics):
        encoded = name.encode()
        parts += (PRODUCE_NAME.pack(len(encoded)), encoded)
    pack, count = PRODUCE_MESSAGE.pack, 0
    for topic, partition, assigned_id, encoded in messages:
        if assigned_id is None:
            parts += (pack(topic, partition, len(encoded), 0), encoded)
        else:
            parts += (pack(topic, partition, len(encoded), PRODUCE_HAS_ID), assigned_id, encoded)
        count += 1
    return PRODUCE_HEAD.pack(patience_ms, count, len(topics)) + b"".join(parts)


def decode_produce_head(payload: bytes) -> ProduceHead:
    """Decode the head of a request. Raises PayloadError."""
    try:
        patience_ms, count, topic_count = PRODUCE_HEAD.unpack_from(payload)
        names, at = _names(payload, PRODUCE_HEAD.size, 1 + topic_count)
    except (struct.error, UnicodeDecodeError) as error:
        raise PayloadError(f"PRODUCE: {len(payload)} bytes are cut off or damaged: {error}") from error
    return ProduceHead(names[0], names[1:], patience_ms, count, at)


def decode_produce(payload: bytes) -> ProduceRequest:
    """Decode a request. Raises PayloadError."""
    cluster, topics, patience_ms, count, at = decode_produce_head(payload)
    try:
        messages, unpack = [], PRODUCE_MESSAGE.unpack_from
        for _ in range(count):
            topic, partition, size, flags = unpack(payload, at)
            start = at + PRODUCE_MESSAGE.size
            assigned_id = None
            if flags & PRODUCE_HAS_ID:
                assigned_id = payload[start : start + ID_SIZE]
                start += ID_SIZE
            at = start + size
            if topic >= len(topics):
                raise PayloadError(f"PRODUCE: topic {topic} of {len(topics)}")
            if partition < ANY_PARTITION:
                raise PayloadError(f"PRODUCE: partition {partition}")
            messages.append(ProducedMessage(topic, partition, assigned_id, payload[start:at]))
    except (struct.error, UnicodeDecodeError) as error:
        raise PayloadError(f"PRODUCE: {len(payload)} bytes are cut off or damaged: {error}") from error
    if at != len(payload):
        raise PayloadError(f"PRODUCE: {len(payload)} bytes where its messages take {at}")
    return ProduceRequest(cluster, topics, patience_ms, messages)


def _names(payload: bytes, at: int, count: int) -> tuple[list[str], int]:
    """The names at a position, and the position after them."""
    names = []
    for _ in range(count):
        (size,) = PRODUCE_NAME.unpack_from(payload, at)
        at += PRODUCE_NAME.size
        names.append(payload[at : at + size].decode())
        at += size
    return names, at


def encode_produced(results: Sequence[ProducedResult]) -> bytes:
    """Encode an answer."""
    packed = b"".join([PRODUCE_RESULT.pack(code, partition, offset) for code, partition, offset, _ in results])
    sentences = {str(index): each.sentence for index, each in enumerate(results) if each.sentence}
    return packed + (json.dumps(sentences).encode() if sentences else b"")


def decode_produced(payload: bytes, count: int) -> list[ProducedResult]:
    """Decode the answer to a request of `count` messages. Raises PayloadError."""
    size = count * PRODUCE_RESULT.size
    if len(payload) < size:
        raise PayloadError(f"PRODUCE: an answer of {len(payload)} bytes to {count} messages")
    results = [ProducedResult(*each) for each in PRODUCE_RESULT.iter_unpack(payload[:size])]
    if len(payload) > size:
        for index, sentence in _object(payload[size:]).items():
            if not index.isdigit() or int(index) >= count:
                raise PayloadError(f"PRODUCE: a sentence for message {index} of {count}")
            results[int(index)] = results[int(index)]._replace(sentence=str(sentence))
    return results


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"PRODUCE: the sentences are not JSON: {error}") from error
    if not isinstance(found, dict):
        raise PayloadError("PRODUCE: the sentences are not a JSON object")
    return found

"""Kafka records as messages of the engine: the table "Copying in" of docs/design/0034-kafka.md, row by row.

| record | message |
|---|---|
| header `penstock-id`, once and a valid id | id: own, or assigned where it has that form |
| no such header | assigned id: 16 bytes of BLAKE2b of Kafka's topic id, partition and offset |
| key in UTF-8, at most 4,096 bytes | key |
| other key | key in hexadecimal (SHA-256 above 2,048 bytes), its bytes in property `penstock-key`, base64 |
| value null | no body, property `penstock-null` = `value` |
| header `penstock-tag`, once and a valid tag | tag |
| headers in UTF-8, named once, not null, without our prefix | properties |
| other headers | property `penstock-headers` |
| timestamp | property `penstock-time`; none for −1 |
"""

import base64
import hashlib
import struct
from collections import Counter
from typing import NamedTuple

from common.ids import ID_SIZE, assigned_at_ms
from common.kafka.records import NO_TIMESTAMP, Headers, Records
from engine.link.produce import RESERVED_PREFIX
from kafka_bridge.copy_in.foreign_headers import encode_headers
from kafka_bridge.mapping import ID_HEADER, TAG_HEADER

KEY_PROPERTY, NULL_PROPERTY = "penstock-key", "penstock-null"
HEADERS_PROPERTY, TIME_PROPERTY = "penstock-headers", "penstock-time"
NULL_VALUE = b"value"

KEY_BYTES_MAX, HEX_KEY_BYTES_MAX = 4096, 2048
TAG_BYTES_MAX, ID_CHARS_MAX = 128, 64
PROPERTIES_MAX, PROPERTIES_BYTES_MAX = 64, 32 << 10
BODY_BYTES_MAX = 16_000_000
"""As for topics of the engine: a delivery has to fit a frame of the contract."""

_TOPIC, _BODY, _KEY, _TAG, _PROPERTIES, _ID = 1, 2, 3, 4, 5, 6
_TEXT = struct.Struct(">bhi").pack
_MAP = struct.Struct(">bhbbi").pack
_SIZE = struct.Struct(">i").pack
_STRING, _MAP_TYPE = 11, 13
_PLACE = struct.Struct(">IQ").pack
_CONTROL = bytes(range(0x21)) + b"\x7f"


class ForeignRecordTooLarge(Exception):
    """The engine cannot store the record. The text names what is too large and the limit."""


class CopiedMessage(NamedTuple):
    """A message in Thrift binary; `assigned_id`: None where the message has its own."""

    encoded: bytes
    assigned_id: bytes | None


class RecordPlace(NamedTuple):
    """Where a record lies in Kafka.

    Attributes:
        topic_id: Kafka's 16 bytes, other ones for a topic that was made again.
    """

    topic_id: bytes
    partition: int
    offset: int


def message_of(
    topic: bytes, place: RecordPlace, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
) -> CopiedMessage:
    """The message of a record.

    Args:
        topic: name of the engine's topic.
    Raises:
        ForeignRecordTooLarge: nothing is cut off silently.
    """
    if value is not None and len(value) > BODY_BYTES_MAX:
        raise ForeignRecordTooLarge(f"its value has {len(value):,} bytes: at most {BODY_BYTES_MAX:,} can be stored")
    special, properties, others = _parted(headers)
    if others:
        properties.append((HEADERS_PROPERTY.encode(), encode_headers(others)))
    own_key = message_key(key)
    if key is not None and own_key != key:
        properties.append((KEY_PROPERTY.encode(), base64.b64encode(key)))
    if value is None:
        properties.append((NULL_PROPERTY.encode(), NULL_VALUE))
    _check_size(properties)
    if timestamp != NO_TIMESTAMP:
        properties.append((TIME_PROPERTY.encode(), b"%d" % timestamp))
    own_id, assigned = _id(special.get(ID_HEADER), place)
    tag = special.get(TAG_HEADER)
    texts = [_text(_TOPIC, topic)]
    texts += [_text(field, text) for field, text in ((_BODY, value), (_KEY, own_key), (_TAG, tag)) if text is not None]
    texts += [_map(properties)] if properties else []
    texts += [_text(_ID, own_id)] if own_id is not None else []
    return CopiedMessage(b"".join(texts) + b"\0", assigned)


def storing_fault(records: Records, index: int) -> str:
    """Why the engine cannot store this record; empty: it can."""
    try:
        message_of(
            b"", RecordPlace(b"", 0, 0), records.timestamps[index], records.keys[index], records.values[index],
            records.headers[index],
        )  # fmt: skip
    except ForeignRecordTooLarge as fault:
        return str(fault)
    return ""


def message_key(key: bytes | None) -> bytes | None:
    """The key that the message of a record with this key has."""
    if key is None or _is_text(key, KEY_BYTES_MAX):
        return key
    return (key if len(key) <= HEX_KEY_BYTES_MAX else hashlib.sha256(key).digest()).hex().encode()


def message_id(headers: Headers, place: RecordPlace) -> bytes:
    """The id that the message of a record has, as clients see it."""
    own, assigned = _id(_parted(headers)[0].get(ID_HEADER), place)
    return assigned.hex().encode() if assigned is not None else own or b""


def _parted(headers: Headers) -> tuple[dict[str, bytes], list[tuple[bytes, bytes]], Headers]:
    """Id and tag by name, the properties, and the headers that cannot be properties; these in their order."""
    special: dict[str, bytes] = {}
    properties: list[tuple[bytes, bytes]] = []
    others: list[tuple[str, bytes | None]] = []
    counts = Counter(name for name, _ in headers)
    for name, value in headers:
        if counts[name] > 1 or value is None:
            others.append((name, value))
        elif (name == ID_HEADER and _is_id(value)) or (name == TAG_HEADER and _is_tag(value)):
            special[name] = value
        elif _is_property(name, value) and len(properties) < PROPERTIES_MAX:
            properties.append((name.encode(), value))
        else:
            others.append((name, value))
    return special, properties, others


def _is_property(name: str, value: bytes) -> bool:
    if name.startswith(RESERVED_PREFIX):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return _is_text(value)


def _is_text(text: bytes, size_max: int = BODY_BYTES_MAX) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return len(text) <= size_max


def _is_id(text: bytes) -> bool:
    return _is_text(text, 4 * ID_CHARS_MAX) and 1 <= len(text.decode()) <= ID_CHARS_MAX


def _is_tag(text: bytes) -> bool:
    return bool(text) and _is_text(text, TAG_BYTES_MAX) and len(text.translate(None, _CONTROL)) == len(text)


def _check_size(properties: list[tuple[bytes, bytes]]) -> None:
    size = sum(len(name) + len(value) for name, value in properties)
    if size > PROPERTIES_BYTES_MAX:
        raise ForeignRecordTooLarge(
            f"its headers and its key need {size:,} bytes of properties: at most {PROPERTIES_BYTES_MAX:,} can be stored"
        )


def _id(own: bytes | None, place: RecordPlace) -> tuple[bytes | None, bytes | None]:
    """Own id and assigned id, one of which is None."""
    if own is None:
        return None, id_of_place(place)
    if assigned_at_ms(own.decode()) is not None:
        return None, bytes.fromhex(own.decode())
    return own, None


def id_of_place(place: RecordPlace) -> bytes:
    """The assigned id of a record without one: a second copy of the record has the same."""
    return hashlib.blake2b(place.topic_id + _PLACE(place.partition, place.offset)).digest()[:ID_SIZE]


def _text(field: int, text: bytes) -> bytes:
    return _TEXT(_STRING, field, len(text)) + text


def _map(properties: list[tuple[bytes, bytes]]) -> bytes:
    texts = [_SIZE(len(text)) + text for each in properties for text in each]
    return _MAP(_MAP_TYPE, _PROPERTIES, _STRING, _STRING, len(properties)) + b"".join(texts)

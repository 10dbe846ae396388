"""Bytes of a dead letter: the stored message, with the dead-letter topic as its topic and its origin in properties.

All other fields stay, byte for byte, except the instructions to a proxy (fields 7 to 10). A redrive removes the
properties. A record that is no message becomes the body of one, so that its form never causes a loss.
"""

import struct
from typing import NamedTuple

from common.dead_letters import PROPERTY
from common.wire import WireError
from common.wire.cursor import MAP, STRING, Cursor

_RECORD = struct.Struct("<IB")
_ID_SIZE = 16
_FIELD, _SIZE, _MAP_HEAD = struct.Struct(">bh"), struct.Struct(">i"), struct.Struct(">bbi")
_TOPIC, _BODY, _KEY, _PROPERTIES, _ID = 1, 2, 3, 5, 6
_INSTRUCTIONS = range(7, 11)


class StoredMessage(NamedTuple):
    """Parsed form of a stored record. `fields`: the bytes of all other fields; `id`: as clients see it."""

    assigned_id: bytes
    topic: str
    key: bytes
    id: str
    properties: dict[bytes, bytes]
    fields: bytes

    @property
    def origin(self) -> dict[str, str]:
        """Origin of a dead letter, names without their prefix; empty for another message."""
        prefix = PROPERTY.encode()
        own = {name: value for name, value in self.properties.items() if name.startswith(prefix)}
        return {name[len(prefix) :].decode(errors="replace"): own[name].decode(errors="replace") for name in own}


def parse(record: bytes) -> StoredMessage:
    """Parse a stored record; a record that is no message counts as the body of one without topic."""
    _, flags = _RECORD.unpack_from(record)
    start = _RECORD.size + (_ID_SIZE if flags & 1 else 0)
    assigned_id = record[_RECORD.size : start]
    try:
        return _parse(assigned_id, record[start:])
    except WireError:
        return StoredMessage(assigned_id, "", b"", assigned_id.hex(), {}, _string(_BODY, record[start:]))


def _parse(assigned_id: bytes, message: bytes) -> StoredMessage:
    cursor, fields = Cursor(message), bytearray()
    found: dict[int, bytes] = {}
    properties: dict[bytes, bytes] = {}
    while True:
        at = cursor.at
        kind, field = cursor.field()
        if kind == 0:
            break
        if field == _PROPERTIES and kind == MAP:
            properties = _properties(cursor)
            continue
        if field in (_TOPIC, _KEY, _ID) and kind == STRING:
            found[field] = cursor.slice(*cursor.string())
        else:
            cursor.skip(kind, 1)
        if field != _TOPIC and field not in _INSTRUCTIONS:
            fields += message[at : cursor.at]
    topic, own_id = found.get(_TOPIC, b"").decode(errors="replace"), found.get(_ID, b"").decode(errors="replace")
    return StoredMessage(
        assigned_id, topic, found.get(_KEY, b""), own_id or assigned_id.hex(), properties, bytes(fields)
    )


def wrap(record: StoredMessage, topic: str, origin: dict[str, object]) -> bytes:
    """Return the dead letter of a record. `origin` becomes properties, names with their prefix, without None values.

    They replace all properties with that prefix: what a sender wrote under such a name says nothing of a dead letter.
    """
    added = {(PROPERTY + name).encode(): str(value).encode() for name, value in origin.items() if value is not None}
    return _record(record, topic, {**_without_origin(record), **added})


def unwrap(record: StoredMessage, topic: str) -> bytes:
    """Return the record that the dead letter was made of, for `topic`."""
    return _record(record, topic, _without_origin(record))


def _without_origin(record: StoredMessage) -> dict[bytes, bytes]:
    prefix = PROPERTY.encode()
    return {name: value for name, value in record.properties.items() if not name.startswith(prefix)}


def _record(record: StoredMessage, topic: str, properties: dict[bytes, bytes]) -> bytes:
    message = _string(_TOPIC, topic.encode()) + record.fields
    if properties:
        pairs = b"".join(_sized(name) + _sized(value) for name, value in properties.items())
        message += _FIELD.pack(MAP, _PROPERTIES) + _MAP_HEAD.pack(STRING, STRING, len(properties)) + pairs
    payload = record.assigned_id + message + b"\0"
    return _RECORD.pack(1 + len(payload), 1 if record.assigned_id else 0) + payload


def _properties(cursor: Cursor) -> dict[bytes, bytes]:
    key_type, value_type, count = cursor.map()
    if count and (key_type, value_type) != (STRING, STRING):
        for _ in range(count):
            cursor.skip(key_type, 2)
            cursor.skip(value_type, 2)
        return {}
    return {cursor.slice(*cursor.string()): cursor.slice(*cursor.string()) for _ in range(count)}


def _string(field: int, value: bytes) -> bytes:
    return _FIELD.pack(STRING, field) + _sized(value)


def _sized(value: bytes) -> bytes:
    return _SIZE.pack(len(value)) + value

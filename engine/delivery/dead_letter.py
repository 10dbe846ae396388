"""A dead letter's bytes: the stored message with the dead-letter topic as its topic and properties that say where it came from.

All other fields stay as they are, byte for byte, but for those that were orders to a proxy (7 to 10). Redriving takes the properties
off again. What is no message becomes the body of one, so that nothing stored is ever lost for its form.
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
_ORDERS = range(7, 11)


class StoredMessage(NamedTuple):
    """A stored record taken apart. `fields`: the other fields as they came, `id`: as people write it."""

    assigned_id: bytes
    topic: str
    key: bytes
    id: str
    properties: dict[bytes, bytes]
    fields: bytes

    @property
    def origin(self) -> dict[str, str]:
        """What a dead letter says of itself, names without their prefix; empty when it is none."""
        prefix = PROPERTY.encode()
        mine = {name: value for name, value in self.properties.items() if name.startswith(prefix)}
        return {name[len(prefix) :].decode(errors="replace"): mine[name].decode(errors="replace") for name in mine}


def parse(record: bytes) -> StoredMessage:
    """Take a stored record apart; what is no message is taken as the body of one without a topic."""
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
        if field != _TOPIC and field not in _ORDERS:
            fields += message[at : cursor.at]
    topic, own_id = found.get(_TOPIC, b"").decode(errors="replace"), found.get(_ID, b"").decode(errors="replace")
    return StoredMessage(assigned_id, topic, found.get(_KEY, b""), own_id or assigned_id.hex(), properties, bytes(fields))


def bury(record: StoredMessage, topic: str, told: dict[str, object]) -> bytes:
    """The dead letter's record. `told` becomes properties, names with their prefix; None values are left out."""
    added = {(PROPERTY + name).encode(): str(value).encode() for name, value in told.items() if value is not None}
    return _record(record, topic, {**record.properties, **added})


def revive(record: StoredMessage, topic: str) -> bytes:
    """The record that a dead letter was made of, for `topic`."""
    prefix = PROPERTY.encode()
    return _record(
        record, topic, {name: value for name, value in record.properties.items() if not name.startswith(prefix)}
    )


def _record(record: StoredMessage, topic: str, properties: dict[bytes, bytes]) -> bytes:
    message = _string(_TOPIC, topic.encode()) + record.fields
    if properties:
        pairs = b"".join(_sized(name) + _sized(value) for name, value in properties.items())
        message += _FIELD.pack(MAP, _PROPERTIES) + _MAP_HEAD.pack(STRING, STRING, len(properties)) + pairs
    payload = record.assigned_id + message + b"\0"
    return _RECORD.pack(1 + len(payload), 1 if record.assigned_id else 0) + payload


def _properties(cursor: Cursor) -> dict[bytes, bytes]:
    of_keys, of_values, count = cursor.map()
    if count and (of_keys, of_values) != (STRING, STRING):
        for _ in range(count):
            cursor.skip(of_keys, 2)
            cursor.skip(of_values, 2)
        return {}
    return {cursor.slice(*cursor.string()): cursor.slice(*cursor.string()) for _ in range(count)}


def _string(field: int, value: bytes) -> bytes:
    return _FIELD.pack(STRING, field) + _sized(value)


def _sized(value: bytes) -> bytes:
    return _SIZE.pack(len(value)) + value

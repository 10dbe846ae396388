"""Messages as Kafka records: the table "Send" of docs/design/0034-kafka.md.

| message | record |
|---|---|
| key | key in UTF-8; unset: null |
| body | value; unset: empty |
| id, its own or an assigned one as senders see it | header `penstock-id` |
| tag | header `penstock-tag` |
| properties | one header each |
"""

import struct
from typing import NamedTuple

from common.kafka.copy_mark import COPY_HEADER
from common.kafka.repair_mark import REPAIR_NAME
from common.wire.cursor import MAP, STRING, Cursor
from common.wire.faults import WireError
from engine.link.produce import RESERVED_PREFIX

ID_HEADER, TAG_HEADER = "penstock-id", "penstock-tag"
OWN_HEADERS = frozenset((ID_HEADER, TAG_HEADER, COPY_HEADER, REPAIR_NAME))
PROPERTY_SUFFIX = "-property"
"""Of a header whose property has the name of one of Penstock's own: no sender can forge these."""

_BODY, _KEY, _TAG, _PROPERTIES, _ID = 2, 3, 4, 5, 6
_TEXT_FIELD = struct.Struct(">xhi").unpack_from
_SIZE = struct.Struct(">i").unpack_from
_FIELD_HEAD_SIZE = 7


class UnmappableMessage(Exception):
    """The message cannot be a record on Kafka. The text names the field and the rule; its code is INVALID."""


class MappedRecord(NamedTuple):
    """Key, value and headers of one record."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]]


def record_of(message: bytes, assigned_id: bytes | None, *, allows_reserved: bool = False) -> MappedRecord:
    """The record of a message in Thrift binary, which a proxy has checked.

    Args:
        allows_reserved: pass properties with reserved names on: of a message that the engine has taken. Those named like
            OWN_HEADERS, but for repair marks, which the caller checks, become headers with PROPERTY_SUFFIX.
    Raises:
        UnmappableMessage: a property has a reserved name, or the bytes are not a message.
    """
    try:
        texts, properties = fields_of(message)
        own_id = texts.get(_ID)
        shown = own_id if assigned_id is None else assigned_id.hex().encode()
        headers: list[tuple[str, bytes | None]] = [] if shown is None else [(ID_HEADER, shown)]
        if (tag := texts.get(_TAG)) is not None:
            headers.append((TAG_HEADER, tag))
        if properties:
            named = [(name.decode(), value) for name, value in properties.items()]
            if not allows_reserved:
                _check_names(named)
            headers += [(_free_name(name), value) for name, value in named]
    except (WireError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnmappableMessage(f"Message: its bytes are not a message: {error}") from error
    return MappedRecord(texts.get(_KEY), texts.get(_BODY, b""), headers)


def _free_name(name: str) -> str:
    return name + PROPERTY_SUFFIX if name in OWN_HEADERS and name != REPAIR_NAME else name


def _check_names(headers: list[tuple[str, bytes]]) -> None:
    for name, _ in headers:
        if name.startswith(RESERVED_PREFIX):
            raise UnmappableMessage(
                f'Message.properties: "{name}": names that begin with {RESERVED_PREFIX} are reserved on a Kafka home'
            )


def fields_of(data: bytes) -> tuple[dict[int, bytes], dict[bytes, bytes]]:
    """Texts by field, and the properties, of a message in Thrift binary. A field that occurs twice has its last value.

    Raises:
        WireError, struct.error, IndexError: the bytes are not a message.
    """
    texts: dict[int, bytes] = {}
    properties: dict[bytes, bytes] = {}
    at = 0
    while kind := data[at]:
        if kind == STRING:
            field, size = _TEXT_FIELD(data, at)
            at += _FIELD_HEAD_SIZE
            texts[field] = _slice(data, at, size)
            at += size
            continue
        cursor = Cursor(data)
        cursor.at = at
        _, field = cursor.field()
        if kind == MAP and field == _PROPERTIES:
            properties, at = _properties(data, cursor)
        else:
            cursor.skip(kind, 1)
            at = cursor.at
    return texts, properties


def _properties(data: bytes, cursor: Cursor) -> tuple[dict[bytes, bytes], int]:
    """The map at the cursor, and the position after it."""
    _, _, count = cursor.map()
    at, found = cursor.at, {}
    for _ in range(count):
        (size,) = _SIZE(data, at)
        name = _slice(data, at + 4, size)
        at += 4 + size
        (size,) = _SIZE(data, at)
        found[name] = _slice(data, at + 4, size)
        at += 4 + size
    return found, at


def _slice(data: bytes, start: int, size: int) -> bytes:
    if not 0 <= size <= len(data) - start:
        raise IndexError(f"a text of {size} bytes at byte {start} of {len(data)}")
    return data[start : start + size]

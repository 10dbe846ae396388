"""What people look for in a stored message: its id and key. Thrift binary, read by thrift/message.thrift's field numbers.

Stored bytes were checked by a proxy once, but a log may hold what no proxy wrote; anything else than a message gives
None for both and never an error.
"""

import struct
from typing import NamedTuple

_STOP, _STRING, _MAP = 0, 11, 13
_FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
_KEY, _ID = 3, 6
_FIELD, _LENGTH, _MAP_HEAD = struct.Struct(">bh"), struct.Struct(">i"), struct.Struct(">bbi")


class Names(NamedTuple):
    """As the client wrote them; None when it did not."""

    id: str | None
    key: str | None


def names(payload: bytes | memoryview) -> Names:
    """The message's id and key."""
    found: dict[int, str] = {}
    try:
        at = 0
        while payload[at] != _STOP:
            kind, field = _FIELD.unpack_from(payload, at)
            end = _skip(payload, at + 3, kind)
            if kind == _STRING and field in (_KEY, _ID):
                found[field] = bytes(payload[at + 7 : end]).decode(errors="replace")
            at = end
    except (IndexError, struct.error, ValueError):
        return Names(None, None)
    return Names(found.get(_ID), found.get(_KEY))


def _skip(payload: bytes | memoryview, at: int, kind: int) -> int:
    if kind in _FIXED:
        return at + _FIXED[kind]
    if kind == _STRING:
        (size,) = _LENGTH.unpack_from(payload, at)
        if not 0 <= size <= len(payload) - at - 4:
            raise ValueError("a string that is longer than the message")
        return at + 4 + size
    if kind == _MAP:
        of_keys, of_values, count = _MAP_HEAD.unpack_from(payload, at)
        at += _MAP_HEAD.size
        if not 0 <= count <= len(payload):
            raise ValueError("a map that is longer than the message")
        for _ in range(count):
            at = _skip(payload, _skip(payload, at, of_keys), of_values)
        return at
    raise ValueError("no field of a message")

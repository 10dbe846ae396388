"""Where a call ends: telling framed from buffered Thrift by the first bytes, and the size of an unframed message.

The pure-Python reference; `_reactor.pyx` does the same in C. Big-endian, as Thrift's binary protocol is.
"""

import struct

FRAMED, BUFFERED = 1, 2
DEPTH_MAX = 16
_FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
_LEAST = {**_FIXED, 11: 4, 12: 1, 13: 6, 14: 5, 15: 5}


class FramingError(Exception):
    """The bytes are no Thrift call of a protocol that this port speaks; the connection cannot be used any further."""


class Incomplete(Exception):
    """More bytes are needed; `args[0]` is a lower bound of the whole message's size."""


def sniff(head: bytes) -> int | None:
    """FRAMED, BUFFERED, or None while fewer than the bytes that decide have come. Raises FramingError on anything else."""
    if not head:
        return None
    if head[0] == 0x80:
        if len(head) > 1 and head[1] != 0x01:
            raise FramingError("not strict binary protocol, version 1")
        return BUFFERED if len(head) > 1 else None
    if head[0] > 0:
        # The longest legal frame begins with a zero byte, so text, TLS and compact protocol end here at their first byte.
        raise FramingError("neither framed nor buffered strict binary Thrift")
    if len(head) >= 5 and head[4] != 0x80:
        raise FramingError("a frame that holds no strict binary message")
    return FRAMED if len(head) >= 5 else None


def message_size(data: bytes | bytearray | memoryview) -> int:
    """Size in bytes of the strict binary message at the start of `data`.

    Raises Incomplete with a lower bound while bytes are missing, FramingError when no continuation can make it legal.
    """
    if len(data) < 8:
        raise Incomplete(8)
    if data[0] != 0x80 or data[1] != 0x01:
        raise FramingError("not strict binary protocol, version 1")
    (name_size,) = struct.unpack_from(">i", data, 4)
    if not 0 <= name_size <= 64:
        raise FramingError("method name longer than 64 bytes")
    return _skip(data, 12 + name_size, 12, 0)


def _need(data, at: int, size: int) -> int:
    if at + size > len(data):
        raise Incomplete(at + size)
    return at + size


def _skip(data, at: int, kind: int, depth: int) -> int:
    if depth > DEPTH_MAX:
        raise FramingError("nested deeper than 16")
    if kind in _FIXED:
        return _need(data, at, _FIXED[kind])
    if kind == 11:
        end = _need(data, at, 4)
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0:
            raise FramingError("negative string size")
        return _need(data, end, size)
    if kind == 12:
        return _skip_struct(data, at, depth)
    if kind in (13, 14, 15):
        return _skip_container(data, at, kind, depth)
    raise FramingError(f"illegal type {kind}")


def _skip_struct(data, at: int, depth: int) -> int:
    while True:
        _need(data, at, 1)
        kind = data[at]
        if kind == 0:
            return at + 1
        at = _need(data, at, 3)
        at = _skip(data, at, kind, depth + 1)


def _skip_container(data, at: int, kind: int, depth: int) -> int:
    head = 6 if kind == 13 else 5
    end = _need(data, at, head)
    kinds = [data[at]] if kind != 13 else [data[at], data[at + 1]]
    (count,) = struct.unpack_from(">i", data, end - 4)
    if count < 0:
        raise FramingError("negative count")
    if count == 0:
        return end
    if any(element not in _LEAST for element in kinds):
        raise FramingError("illegal element type")
    least = sum(_LEAST[element] for element in kinds)
    _need(data, end, count * least)
    for _ in range(count):
        for element in kinds:
            end = _skip(data, end, element, depth + 1)
    return end

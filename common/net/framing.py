"""End of a call: tells framed from buffered Thrift by the first bytes, and finds the size of an unframed message.

The reference of `_framing.pyx` and `_frames.pyx`. Big-endian, as Thrift's binary protocol is.
"""

import struct

FRAMED, BUFFERED = 1, 2
SNIFFED_BYTES = 6
"""Number of first bytes that surely tell the protocol."""
DEPTH_MAX = 16
_LONG_FRAME = 8  # first byte of a frame of 128 MiB; shorter ones above the limit are refused with an answer
_FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
_LEAST = {**_FIXED, 11: 4, 12: 1, 13: 6, 14: 5, 15: 5}


class FramingError(Exception):
    """The bytes are not a Thrift call of a supported protocol; the connection must be closed."""


class Incomplete(Exception):
    """More bytes are needed; `args[0]` is a lower bound of the message's size."""


def sniff(head: bytes) -> int | None:
    """Return FRAMED, BUFFERED, or None while too few bytes have come. Raises FramingError for other protocols."""
    if not head:
        return None
    if head[0] == 0x80:
        if len(head) > 1 and head[1] != 0x01:
            raise FramingError("not strict binary protocol, version 1")
        return BUFFERED if len(head) > 1 else None
    if head[0] >= _LONG_FRAME:
        # The first byte rejects text, TLS and the compact protocol.
        raise FramingError("neither framed nor buffered strict binary Thrift")
    if not b"\x80\x01".startswith(head[4:6]):
        raise FramingError("a frame that holds no strict binary message")
    return FRAMED if len(head) >= (5 if head[0] == 0 else SNIFFED_BYTES) else None


def message_size(data: bytes | bytearray | memoryview) -> int:
    """Return the size in bytes of the strict binary message at the start of `data`.

    Raises Incomplete with a lower bound while bytes are missing, FramingError when no continuation makes it valid.
    """
    return MessageScan().size(data)


class MessageScan:
    """Search for the end of one message. It continues from its last position when more bytes have come.

    If it restarted each time, a call in many small pieces would cost the square of its size.
    """

    def __init__(self) -> None:
        self._values: ValueScan | None = None

    def size(self, data: bytes | bytearray | memoryview) -> int:
        """As message_size(); `data` begins with the bytes of the last call."""
        if self._values is None:
            if len(data) < 8:
                raise Incomplete(8)
            if data[0] != 0x80 or data[1] != 0x01:
                raise FramingError("not strict binary protocol, version 1")
            (name_size,) = struct.unpack_from(">i", data, 4)
            if not 0 <= name_size <= 64:
                raise FramingError("method name longer than 64 bytes")
            self._values = ValueScan(12 + name_size)
        return self._values.end(data)


class ValueScan:
    """Search for the end of the struct at `at`; the same stack as `MessageScan` in `_framing.pxd`."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._levels: list[list] = [[12, (), 0]]  # type, types of element, values to come

    def end(self, data: bytes | bytearray | memoryview) -> int:
        """Return the position after the struct. Raises Incomplete, FramingError."""
        while self._levels:
            kind, elements, left = self._levels[-1]
            at = self._at
            if kind != 12:
                if left == 0:
                    self._levels.pop()
                    continue
                self._value(data, at, elements[-left % len(elements)])
                continue
            _need(data, at, 1)
            if data[at] == 0:
                self._at += 1
                self._levels.pop()
                continue
            self._value(data, _need(data, at, 3), data[at])
        return self._at

    def _value(self, data: bytes | bytearray | memoryview, at: int, kind: int) -> None:
        """Step over a value, or into it. Nothing has moved when bytes are missing."""
        if len(self._levels) > DEPTH_MAX:
            raise FramingError("nested deeper than 16")
        level, inner = self._levels[-1], None
        if kind in _FIXED:
            end = _need(data, at, _FIXED[kind])
        elif kind == 11:
            end = _need(data, at, 4)
            (size,) = struct.unpack_from(">i", data, at)
            if size < 0:
                raise FramingError("negative string size")
            end = _need(data, end, size)
        elif kind == 12:
            end, inner = at, [12, (), 0]
        elif kind in (13, 14, 15):
            end, inner = self._container(data, at, kind)
        else:
            raise FramingError(f"illegal type {kind}")
        level[2] -= level[0] != 12
        self._at = end
        if inner is not None:
            self._levels.append(inner)

    def _container(self, data: bytes | bytearray | memoryview, at: int, kind: int) -> tuple[int, list | None]:
        """Return the position after the container's head, and its level.

        When all elements have a fixed size, the position is after its end.
        """
        end = _need(data, at, 6 if kind == 13 else 5)
        elements = tuple(data[at : at + 2]) if kind == 13 else (data[at],)
        (count,) = struct.unpack_from(">i", data, end - 4)
        if count < 0:
            raise FramingError("negative count")
        if count == 0:
            return end, None
        if any(element not in _LEAST for element in elements):
            raise FramingError("illegal element type")
        least_end = _need(data, end, count * sum(_LEAST[element] for element in elements))
        if len(self._levels) == DEPTH_MAX:
            raise FramingError("nested deeper than 16")
        if all(element in _FIXED for element in elements):
            return least_end, None
        return end, [kind, elements, count * len(elements)]


def _need(data: bytes | bytearray | memoryview, at: int, size: int) -> int:
    if at + size > len(data):
        raise Incomplete(at + size)
    return at + size

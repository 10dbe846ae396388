"""Cursor over Thrift's strict binary protocol (big-endian). The reference of `_cursor.pxd`, function by function.

Every step checks the frame's end before it reads, and raises WireError. Cost is linear in the skipped bytes: each
element of a container needs at least one existing byte, and elements of fixed size are skipped at once.
"""

import re
import struct

from common.wire.faults import WireError, WireFault

I32, I64, STRING, STRUCT, MAP, LIST = 8, 10, 11, 12, 13, 15
DEPTH_MAX = 16
ELEMENTS_MAX = 100_000  # of all lists, sets and maps: bounds the work of a decoder after the walker

FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
LEAST = {**FIXED, STRING: 4, STRUCT: 1, MAP: 6, 14: 5, LIST: 5}

_I32 = struct.Struct(">i").unpack_from
_I64 = struct.Struct(">q").unpack_from
_FIELD_ID = struct.Struct(">h").unpack_from
_NAME = re.compile(rb"[A-Za-z0-9._-]{1,249}")


def valid_name(name: bytes) -> bool:
    """Whether the bytes are a valid name of a topic or group."""
    return _NAME.fullmatch(name) is not None and name not in (b".", b"..")


def valid_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class Cursor:
    """Position in a frame. `seqid` goes into each WireError."""

    __slots__ = ("at", "data", "elements", "end", "seqid")

    def __init__(self, frame: bytes):
        self.data = frame
        self.end = len(frame)
        self.at = 0
        self.elements = 0
        self.seqid = 0

    def fail(self, rule: WireFault, at: int, field: int = 0):
        raise WireError(rule, at, field, self.seqid)

    def need(self, size: int) -> None:
        if self.end - self.at < size:
            self.fail(WireFault.TRUNCATED, self.at)

    def field(self) -> tuple[int, int]:
        """Return (type, id) of the next field; type 0 at the struct's end."""
        self.need(1)
        kind = self.data[self.at]
        if kind == 0:
            self.at += 1
            return 0, 0
        if kind not in LEAST:
            self.fail(WireFault.TYPE, self.at)
        self.need(3)
        (field_id,) = _FIELD_ID(self.data, self.at + 1)
        self.at += 3
        return kind, field_id

    def expect(self, kind: int, wanted: int, field: int) -> None:
        """Check that the field just read has the contract's type."""
        if kind != wanted:
            self.fail(WireFault.FIELD_TYPE, self.at - 3, field)

    def i32(self) -> int:
        self.need(4)
        (value,) = _I32(self.data, self.at)
        self.at += 4
        return value

    def i64(self) -> int:
        self.need(8)
        (value,) = _I64(self.data, self.at)
        self.at += 8
        return value

    def string(self) -> tuple[int, int]:
        """Return (start, size) of a string or binary."""
        self.need(4)
        (size,) = _I32(self.data, self.at)
        if size < 0:
            self.fail(WireFault.SIZE, self.at)
        if size > self.end - self.at - 4:
            self.fail(WireFault.TRUNCATED, self.at)
        start = self.at + 4
        self.at = start + size
        return start, size

    def slice(self, start: int, size: int) -> bytes:
        return self.data[start : start + size]

    def count(self, least: int) -> int:
        """Return an element count; it must fit the bytes that follow, and the total limit of a call."""
        (count,) = _I32(self.data, self.at)
        if count < 0 or count * least > self.end - self.at - 4:
            self.fail(WireFault.COUNT, self.at)
        self.elements += count
        if self.elements > ELEMENTS_MAX:
            self.fail(WireFault.TOO_MANY_ELEMENTS, self.at)
        self.at += 4
        return count

    def list(self) -> tuple[int, int]:
        """Return (element type, count)."""
        self.need(5)
        kind = self.data[self.at]
        if kind not in LEAST:
            self.fail(WireFault.TYPE, self.at)
        self.at += 1
        return kind, self.count(LEAST[kind])

    def list_of(self, wanted: int, count_max: int, field: int) -> int:
        """Return the count of a list of the contract; checks its element type and its limit per call."""
        at = self.at
        kind, count = self.list()
        if kind != wanted:
            self.fail(WireFault.FIELD_TYPE, at, field)
        if count > count_max:
            self.fail(WireFault.LIST_TOO_LONG, at + 1, field)
        return count

    def map(self) -> tuple[int, int, int]:
        """(key type, value type, count)."""
        self.need(6)
        key, value = self.data[self.at], self.data[self.at + 1]
        if key not in LEAST:
            self.fail(WireFault.TYPE, self.at)
        if value not in LEAST:
            self.fail(WireFault.TYPE, self.at + 1)
        self.at += 2
        return key, value, self.count(LEAST[key] + LEAST[value])

    def skip(self, kind: int, level: int) -> None:
        """Step over one value that lies inside `level` structs and containers; recursion ends at DEPTH_MAX."""
        size = FIXED.get(kind)
        if size:
            self.need(size)
            self.at += size
        elif kind == STRING:
            self.string()
        elif level >= DEPTH_MAX:
            self.fail(WireFault.DEPTH, self.at)
        elif kind == STRUCT:
            self._skip_struct(level + 1)
        elif kind == MAP:
            self._skip_map(level + 1)
        else:
            self._skip_list(level + 1)

    def _skip_struct(self, level: int) -> None:
        while True:
            kind, _ = self.field()
            if kind == 0:
                return
            self.skip(kind, level)

    def _skip_list(self, level: int) -> None:
        kind, count = self.list()
        if kind in FIXED:
            self.at += count * FIXED[kind]
            return
        for _ in range(count):
            self.skip(kind, level)

    def _skip_map(self, level: int) -> None:
        key, value, count = self.map()
        if key in FIXED and value in FIXED:
            self.at += count * (FIXED[key] + FIXED[value])
            return
        for _ in range(count):
            self.skip(key, level)
            self.skip(value, level)

    def fields(self, types: tuple[int, ...], struct_field: int, level: int):
        """Yield the struct's known field ids. The caller reads each field before it takes the next id.

        `types` are the contract's types by id. Fields that the contract does not have are skipped.
        """
        while True:
            kind, field_id = self.field()
            if kind == 0:
                return
            if not 1 <= field_id < len(types):
                self.skip(kind, level)
                continue
            self.expect(kind, types[field_id], struct_field + field_id)
            yield field_id

    def all_seen(self, seen: set[int], required: tuple[int, ...], struct_field: int) -> None:
        """Check that no required field is missing; else raise a fault for the first, at the struct's STOP."""
        for field_id in required:
            if field_id not in seen:
                self.fail(WireFault.MISSING, self.at - 1, struct_field + field_id)

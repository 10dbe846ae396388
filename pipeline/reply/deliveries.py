"""Reads the deliveries of a reply of `pull` into buffers of Arrow columns: the reference of _deliveries.pyx."""

import struct
from collections.abc import Iterator

from pipeline.errors import ReplyError
from pipeline.reply import columns as c
from pipeline.reply.columns import Column, Deliveries
from pipeline.reply.row_filter import ALL_ROWS, RowFilter, compiled

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
FIXED = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}
DEPTH_MAX = 16
DELIVERY_BYTES_MIN = 54
"""Size of a delivery with the shortest required fields, which bounds the count that a list may claim."""

# Thrift field of a Delivery, and of the Message in its field 7 → column.
OF_DELIVERY = {2: c.QUEUE, 3: c.OFFSET, 4: c.ATTEMPT, 5: c.STORED_AT, 6: c.ID, 10: c.SOURCE}
OF_MESSAGE = {1: c.TOPIC, 2: c.BODY, 3: c.KEY, 4: c.TAG, 5: c.PROPERTIES}
KINDS = {
    c.QUEUE: I32, c.OFFSET: I64, c.ATTEMPT: I32, c.STORED_AT: I64, c.ID: STRING, c.SOURCE: STRING,
    c.TOPIC: STRING, c.BODY: STRING, c.KEY: STRING, c.TAG: STRING, c.PROPERTIES: MAP,
}  # fmt: skip
MICROSECONDS = 1000
MESSAGE = -1
"""Key of the whole message's place in a row, beside the columns' numbers."""

Row = dict[int, tuple[int, int]]


def read_deliveries(frame: bytes, wanted: int, rows: RowFilter = ALL_ROWS) -> Deliveries:
    """Read the deliveries of one reply.

    Args:
        frame: one strict binary Thrift message, a reply of `pull`, without the framing's length.
        wanted: bit set of the columns to fill.
        rows: what holds for each delivery that is kept.
    Raises:
        ReplyError: the frame is not such a reply; names the byte.
    """
    at = _response_at(frame)
    while True:
        kind, field, at = _field(frame, at)
        if kind == 0:
            raise ReplyError(f"reply: no list of deliveries before byte {at}")
        if kind == LIST and field == 2:
            found, end = _rows(frame, at)
            kept = [row for row in found if _passes(frame, row, rows)]
            filled = [_column(frame, kept, number) if wanted >> number & 1 else None for number in range(len(c.NAMES))]
            return Deliveries(len(kept), filled, at, end, len(found))
        at = _skip(frame, at, kind, 1)


def _response_at(frame: bytes) -> int:
    """The first field of the PullResponse, after the message's header and field 0 of the result."""
    if len(frame) < 12 or frame[:4] != b"\x80\x01\x00\x02":
        raise ReplyError("reply: not a reply in strict binary encoding")
    at = _skip(frame, 4, STRING, 1) + 4
    kind, field, at = _field(frame, at)
    if (kind, field) != (STRUCT, 0):
        raise ReplyError(f"reply: no result at byte {at}")
    return at


def _field(frame: bytes, at: int) -> tuple[int, int, int]:
    """(type, number, place of the value) of the field at `at`; type 0 at the end of the struct."""
    if at >= len(frame):
        raise _malformed(at)
    if frame[at] == 0:
        return 0, 0, at + 1
    if at + 3 > len(frame):
        raise _malformed(at)
    return frame[at], frame[at + 1] << 8 | frame[at + 2], at + 3


def _rows(frame: bytes, at: int) -> tuple[list[Row], int]:
    if at + 5 > len(frame) or frame[at] != STRUCT:
        raise _malformed(at)
    count = int.from_bytes(frame[at + 1 : at + 5], "big")
    at += 5
    if count > (len(frame) - at) // DELIVERY_BYTES_MIN:
        raise _malformed(at)
    rows = []
    for _ in range(count):
        row: Row = {}
        at = _fill(frame, at, OF_DELIVERY, row)
        rows.append(row)
    return rows, at


def _passes(frame: bytes, row: Row, rows: RowFilter) -> bool:
    """A delivery without a time or a message passes the test of it."""
    stored, message, test = row.get(c.STORED_AT), row.get(MESSAGE), compiled(rows.texts)
    if stored and not rows.from_ms <= int.from_bytes(frame[slice(*stored)], "big", signed=True) < rows.to_ms:
        return False
    return test is None or message is None or test.passes(frame[slice(*message)])


def _fill(frame: bytes, at: int, fields: dict[int, int], row: Row) -> int:
    """Note the places of a struct's known fields; returns its end. A later field of a number replaces an earlier one."""
    while True:
        kind, field, at = _field(frame, at)
        if kind == 0:
            return at
        if fields is OF_DELIVERY and (kind, field) == (STRUCT, 7):
            end = _fill(frame, at, OF_MESSAGE, row)
            row[MESSAGE], at = (at, end), end
            continue
        end = _skip(frame, at, kind, 2)
        column = fields.get(field)
        if column is not None and KINDS[column] == kind:
            if kind == MAP and end > at + 6 and frame[at : at + 2] != b"\x0b\x0b":
                raise _malformed(at)
            row[column] = (at + 4, end) if kind == STRING else (at, end)
        at = end


def _skip(frame: bytes, at: int, kind: int, depth: int) -> int:
    """The end of one value."""
    if kind in FIXED:
        end = at + FIXED[kind]
    elif depth > DEPTH_MAX:
        raise _malformed(at)
    elif kind == STRING:
        end = at + 4 + int.from_bytes(_bytes(frame, at, 4), "big")
    elif kind == STRUCT:
        return _skip_struct(frame, at, depth)
    elif kind == MAP:
        key, value, *count = _bytes(frame, at, 6)
        return _skip_elements(frame, at + 6, (key, value), int.from_bytes(bytes(count), "big"), depth)
    elif kind in (SET, LIST):
        element, *count = _bytes(frame, at, 5)
        return _skip_elements(frame, at + 5, (element,), int.from_bytes(bytes(count), "big"), depth)
    else:
        raise _malformed(at)
    if end > len(frame):
        raise _malformed(at)
    return end


def _skip_struct(frame: bytes, at: int, depth: int) -> int:
    while True:
        kind, _, at = _field(frame, at)
        if kind == 0:
            return at
        at = _skip(frame, at, kind, depth + 1)


def _skip_elements(frame: bytes, at: int, kinds: tuple[int, ...], count: int, depth: int) -> int:
    if count * len(kinds) > len(frame) - at:
        raise _malformed(at)
    for _ in range(count):
        for kind in kinds:
            at = _skip(frame, at, kind, depth + 1)
    return at


def _bytes(frame: bytes, at: int, size: int) -> bytes:
    if at + size > len(frame):
        raise _malformed(at)
    return frame[at : at + size]


def _malformed(at: int) -> ReplyError:
    return ReplyError(f"reply: malformed near byte {at}")


def _column(frame: bytes, rows: list[Row], number: int) -> Column:
    places = [row.get(number) for row in rows]
    if KINDS[number] == MAP:
        return _map_column(frame, places)
    if KINDS[number] == STRING:
        texts = [frame[place[0] : place[1]] if place else b"" for place in places]
        return (_validity(places), _offsets(texts), b"".join(texts))
    code, factor = {I32: "i", I64: "q"}[KINDS[number]], MICROSECONDS if number == c.STORED_AT else 1
    values = [int.from_bytes(frame[place[0] : place[1]], "big", signed=True) if place else 0 for place in places]
    if factor > 1:
        values = [(value * factor + (1 << 63)) % (1 << 64) - (1 << 63) for value in values]
    return (_validity(places), struct.pack(f"<{len(values)}{code}", *values))


def _map_column(frame: bytes, places: list[tuple[int, int] | None]) -> Column:
    entries = [list(_entries(frame, place[0])) if place else [] for place in places]
    names = [name for row in entries for name, _ in row]
    values = [value for row in entries for _, value in row]
    counts = _running(len(row) for row in entries)
    return (_validity(places), counts, _offsets(names), b"".join(names), _offsets(values), b"".join(values))


def _entries(frame: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    count = int.from_bytes(frame[at + 2 : at + 6], "big")
    at += 6
    for _ in range(count):
        middle = _skip(frame, at, STRING, 1)
        end = _skip(frame, middle, STRING, 1)
        yield frame[at + 4 : middle], frame[middle + 4 : end]
        at = end


def _validity(places: list[tuple[int, int] | None]) -> bytes | None:
    if None not in places:
        return None
    bits = bytearray((len(places) + 7) // 8)
    for index, place in enumerate(places):
        if place is not None:
            bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits)


def _offsets(texts: list[bytes]) -> bytes:
    return _running(map(len, texts))


def _running(sizes: Iterator[int]) -> bytes:
    """Sums of the first 0, 1, 2, … sizes."""
    total, sums = 0, [0]
    for size in sizes:
        total += size
        sums.append(total)
    return struct.pack(f"<{len(sums)}i", *sums)

"""Messages of `send` from Arrow buffers, and the results of its reply: the reference of _messages.pyx."""

import struct
from array import array
from typing import NamedTuple

from common.contract import decode_reply
from pipeline.sink.columns import MapColumn, MessageColumns, TextColumn

FIELDS = (("topic", 1), ("body", 2), ("key", 3), ("tag", 4), ("properties", 5), ("id", 6))
FAILED_FROM = 100


class Encoded(NamedTuple):
    """`data`: the first `message_count` of the rows as Message structs, one after another."""

    data: bytes
    message_count: int


class RowResult(NamedTuple):
    """The result of a message that was not stored. `row`: its number in the call."""

    row: int
    code: int
    retry_after_ms: int
    error: str


class SendResults(NamedTuple):
    """Results of one call: how many messages were stored, were DUPLICATE among these, and the others."""

    stored: int
    duplicates: int
    failed: list[RowResult]


def encode_messages(columns: MessageColumns, rows: array, first: int, bytes_max: int) -> Encoded:
    """Encode rows from `rows[first]` on, at least one, as long as they fit into `bytes_max`.

    Args:
        rows: numbers of rows (array of type I) in the columns. None is at or after the columns' end.
    """
    parts: list[bytes] = []
    size = 0
    for row in rows[first:]:
        message = _message(columns, row)
        if parts and size + len(message) > bytes_max:
            break
        parts.append(message)
        size += len(message)
    return Encoded(b"".join(parts), len(parts))


def _message(columns: MessageColumns, row: int) -> bytes:
    parts = []
    for name, field in FIELDS:
        column = getattr(columns, name)
        if column is None:
            continue
        value = _map(column, row) if name == "properties" else _text(column, row)
        if value is not None:
            parts.append(struct.pack(">BH", 13 if name == "properties" else 11, field) + value)
    return b"".join(parts) + b"\0"


def _text(column: TextColumn, row: int) -> bytes | None:
    """The value with its length; None when it is null."""
    validity, offsets, data, first = column
    row += first
    if not _is_valid(validity, row):
        return None
    start, end = struct.unpack_from("<ii", offsets, 4 * row)
    return struct.pack(">I", end - start) + bytes(memoryview(data)[start:end])


def _map(column: MapColumn, row: int) -> bytes | None:
    """The entries with their count. A null value is sent as an empty text."""
    validity, offsets, first, names, values = column
    row += first
    if not _is_valid(validity, row):
        return None
    start, end = struct.unpack_from("<ii", offsets, 4 * row)
    parts = [(_text(names, entry) or bytes(4)) + (_text(values, entry) or bytes(4)) for entry in range(start, end)]
    return struct.pack(">BBI", 11, 11, end - start) + b"".join(parts)


def _is_valid(validity: object, row: int) -> bool:
    return validity is None or bool(memoryview(validity)[row >> 3] >> (row & 7) & 1)  # type: ignore[arg-type]


def read_results(frame: bytes) -> SendResults:
    """The results of a reply of `send`.

    Raises:
        ReplyError: it is malformed.
        TApplicationException: it does not answer a send.
    """
    response = decode_reply(frame)
    failed = [
        RowResult(index, each.code, each.retry_after_ms or 0, each.error or "")
        for index, each in enumerate(response.results)  # type: ignore[attr-defined]
        if each.code >= FAILED_FROM
    ]
    results = response.results  # type: ignore[attr-defined]
    return SendResults(len(results) - len(failed), sum(each.code == 2 for each in results), failed)

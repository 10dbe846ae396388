"""Stored records: u32 size, flags, [16 bytes of assigned id], message in Thrift binary, [trailer].

The trailer is a request's reply token, or the offset that a copied record has in its source.

The size counts everything after itself. Described in docs/format/log.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

from common.reply_token import BOUND_VERSION as REPLY_TOKEN_BOUND
from common.reply_token import MAC_AT as REPLY_TOKEN_MAC_AT
from common.reply_token import REPLY_BY_AT
from common.reply_token import TOKEN_SIZE as REPLY_TOKEN_SIZE
from common.reply_token import VERSION as REPLY_TOKEN_VERSION
from common.wire import WireError
from common.wire.cursor import STRING, Cursor
from engine.link.errors import PayloadError
from engine.link.integers import U32

RECORD_HEAD_SIZE = 5
HAS_ID = RECORD_HAS_ID = 1
HAS_TRAILER = RECORD_HAS_TRAILER = 2
"""Flags: an assigned id precedes the message; a request's reply token follows it."""

HAS_SOURCE_OFFSET = RECORD_HAS_SOURCE_OFFSET = 4
"""Flag of a copied record: its u64 offset in the source follows the message."""

SOURCE_OFFSET_SIZE = 8

KEY_FIELD = 3
"""Of a message."""

ASSIGNED_ID_SIZE = 16

__all__ = [
    "ASSIGNED_ID_SIZE", "HAS_ID", "HAS_SOURCE_OFFSET", "HAS_TRAILER", "RECORD_HAS_ID", "RECORD_HAS_SOURCE_OFFSET",
    "RECORD_HAS_TRAILER", "RECORD_HEAD_SIZE", "REPLY_BY_AT", "REPLY_TOKEN_BOUND", "REPLY_TOKEN_MAC_AT",
    "REPLY_TOKEN_SIZE", "REPLY_TOKEN_VERSION", "SOURCE_OFFSET_SIZE", "StoredRecord", "encode_copied_record",
    "encode_record", "key_of", "read_record", "split_records",
]  # fmt: skip


class StoredRecord(NamedTuple):
    """One record. `assigned_id` is empty when the message has its own id, `reply_token` unless it is a request.

    `source_offset`: of a copied record, else None.
    """

    assigned_id: bytes
    message: bytes
    reply_token: bytes
    source_offset: int | None = None


def encode_record(message: bytes, assigned_id: bytes = b"", reply_token: bytes = b"") -> bytes:
    """Encode one record."""
    flags = (HAS_ID if assigned_id else 0) | (HAS_TRAILER if reply_token else 0)
    size = 1 + len(assigned_id) + len(message) + len(reply_token)
    return b"".join((U32.pack(size), bytes((flags,)), assigned_id, message, reply_token))


def encode_copied_record(message: bytes, source_offset: int, assigned_id: bytes = b"") -> bytes:
    """Encode one record that was copied from that offset of its source."""
    flags = HAS_SOURCE_OFFSET | (HAS_ID if assigned_id else 0)
    size = 1 + len(assigned_id) + len(message) + SOURCE_OFFSET_SIZE
    return b"".join((U32.pack(size), bytes((flags,)), assigned_id, message, source_offset.to_bytes(8, "little")))


def read_record(records: bytes, at: int) -> tuple[StoredRecord, int]:
    """Decode the record at `at`; returns it and the position after it. Raises PayloadError."""
    start = at + RECORD_HEAD_SIZE
    end = at + 4 + int.from_bytes(records[at : at + 4], "little")
    if start > len(records) or not start <= end <= len(records):
        raise PayloadError(f"record at byte {at}: runs past byte {len(records)}")
    flags = records[at + 4]
    message_at = start + (ASSIGNED_ID_SIZE if flags & HAS_ID else 0)
    is_copied = bool(flags & HAS_SOURCE_OFFSET)
    message_end = end - (REPLY_TOKEN_SIZE if flags & HAS_TRAILER else 0) - (SOURCE_OFFSET_SIZE if is_copied else 0)
    if message_end < message_at:
        raise PayloadError(f"record at byte {at}: shorter than its id and its trailer")
    token_end = end - SOURCE_OFFSET_SIZE if is_copied else end
    found = StoredRecord(
        records[start:message_at], records[message_at:message_end], records[message_end:token_end],
        int.from_bytes(records[token_end:end], "little") if is_copied else None,
    )  # fmt: skip
    return found, end


def split_records(records: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """(assigned id or None, message) of each record, without reply tokens. Raises PayloadError."""
    at = 0
    while at < len(records):
        record, at = read_record(records, at)
        yield record.assigned_id or None, record.message


def key_of(record: bytes) -> bytes | None:
    """Return the key in a stored record; None without a key or a message."""
    cursor = Cursor(record)
    cursor.at = RECORD_HEAD_SIZE + (ASSIGNED_ID_SIZE if record[4] & HAS_ID else 0)
    key = None
    try:
        while True:
            kind, field = cursor.field()
            if kind == 0:
                return key
            if field == KEY_FIELD and kind == STRING:
                key = bytes(cursor.slice(*cursor.string()))
            else:
                cursor.skip(kind, 1)
    except WireError:
        return None

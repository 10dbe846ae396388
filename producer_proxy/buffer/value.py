"""A value in Redis: "PB1" ‖ u32 crc32c of the entry, little-endian ‖ the entry. Somebody else's bytes are told from ours."""

import struct

import google_crc32c

from producer_proxy.buffer.entry import Entry, EntryError, decode

_HEAD = struct.Struct("<3sI")
MAGIC = b"PB1"


def pack_value(entry: Entry) -> bytes:
    data = entry.encode()
    return _HEAD.pack(MAGIC, google_crc32c.value(data)) + data


def unpack_value(value: bytes) -> Entry:
    """Raises EntryError."""
    if len(value) < _HEAD.size:
        raise EntryError(f"a value of {len(value)} bytes")
    magic, checksum = _HEAD.unpack_from(value)
    data = value[_HEAD.size :]
    if magic != MAGIC:
        raise EntryError("not a value of ours")
    if google_crc32c.value(data) != checksum:
        raise EntryError("the value's checksum does not fit")
    return decode(data)

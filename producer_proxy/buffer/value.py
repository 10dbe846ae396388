"""A value in Redis: "PB1" ‖ u32 crc32c of the entry, little-endian ‖ the entry.

The head tells foreign bytes from entries.
"""

import struct

import google_crc32c

from producer_proxy.buffer.entry import BufferEntry, EntryError, decode

_HEAD = struct.Struct("<3sI")
MAGIC = b"PB1"


def pack_value(entry: BufferEntry) -> bytes:
    data = entry.encode()
    return _HEAD.pack(MAGIC, google_crc32c.value(data)) + data


def unpack_value(value: bytes) -> BufferEntry:
    """Decode a value. Raises EntryError."""
    if len(value) < _HEAD.size:
        raise EntryError(f"a value of {len(value)} bytes")
    magic, checksum = _HEAD.unpack_from(value)
    data = value[_HEAD.size :]
    if magic != MAGIC:
        raise EntryError("not a buffer value: it does not begin with PB1")
    if google_crc32c.value(data) != checksum:
        raise EntryError("the value's checksum does not fit")
    return decode(data)

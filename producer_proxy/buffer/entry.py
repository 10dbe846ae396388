"""One buffered message: the record's bytes as they would have been appended, and what a drainer needs to send them on.

    0 u8 version 1 ‖ 1 u8 flags (bit 0: there is a key) ‖ 2 u16 topic size ‖ 4 u32 key size ‖ 8 i64 accepted-at, Unix ms
    16 topic ‖ key ‖ record: u8 flags (bit 0: a 16-byte assigned id follows) ‖ [16 B id] ‖ Message, Thrift binary as
    received

Little-endian. Stores keep these bytes and add their own frame and checksum.
"""

import struct
from typing import NamedTuple

_HEAD = struct.Struct("<BBHIq")
VERSION = 1
_HAS_KEY, _HAS_ASSIGNED_ID = 1, 1
ID_SIZE = 16


class EntryError(ValueError):
    """The bytes are not an entry of this version."""


class BufferEntry(NamedTuple):
    """A decoded entry.

    Attributes:
        key: the message's key in UTF-8; None: it has none.
        assigned_id: the 16 bytes that the proxy gave it; None: the message carries its own.
        message: the Message as it came.
    """

    topic: str
    key: bytes | None
    assigned_id: bytes | None
    message: bytes
    accepted_at_ms: int

    def encode(self) -> bytes:
        topic, key = self.topic.encode(), self.key or b""
        head = _HEAD.pack(VERSION, self.key is not None, len(topic), len(key), self.accepted_at_ms)
        record = b"\x00" if self.assigned_id is None else b"\x01" + self.assigned_id
        return b"".join((head, topic, key, record, self.message))

    @property
    def size_bytes(self) -> int:
        """Size of the encoded form, without building it."""
        given = 0 if self.assigned_id is None else ID_SIZE
        return _HEAD.size + len(self.topic) + len(self.key or b"") + 1 + given + len(self.message)


def decode(data: bytes) -> BufferEntry:
    """Decode an entry. Raises EntryError."""
    if len(data) < _HEAD.size + 1:
        raise EntryError(f"an entry of {len(data)} bytes")
    version, flags, topic_size, key_size, accepted_at_ms = _HEAD.unpack_from(data)
    record_at = _HEAD.size + topic_size + key_size
    if version != VERSION:
        raise EntryError(f"an entry of version {version}, not {VERSION}")
    if record_at + 1 > len(data) or not topic_size:
        raise EntryError("the sizes in the entry's head do not fit its bytes")
    message_at = record_at + 1 + (ID_SIZE if data[record_at] & _HAS_ASSIGNED_ID else 0)
    if message_at > len(data):
        raise EntryError("the entry ends inside its id")
    try:
        topic = data[_HEAD.size : _HEAD.size + topic_size].decode("ascii")
    except UnicodeDecodeError:
        raise EntryError("the entry's topic is not ASCII") from None
    return BufferEntry(
        topic,
        data[record_at - key_size : record_at] if flags & _HAS_KEY else None,
        data[record_at + 1 : message_at] or None,
        data[message_at:],
        accepted_at_ms,
    )

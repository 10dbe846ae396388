"""Thrift binary frames made by hand, so that a test can make each byte wrong. Nothing here checks anything."""

import struct

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
STOP = b"\0"


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def text(value: bytes) -> bytes:
    return i32(len(value)) + value


def field(kind: int, field_id: int, value: bytes) -> bytes:
    return struct.pack(">Bh", kind, field_id) + value


def struct_of(*fields: bytes) -> bytes:
    return b"".join(fields) + STOP


def list_of(kind: int, *elements: bytes) -> bytes:
    return bytes([kind]) + i32(len(elements)) + b"".join(elements)


def map_of(*entries: tuple[bytes, bytes]) -> bytes:
    return bytes([STRING, STRING]) + i32(len(entries)) + b"".join(text(key) + text(value) for key, value in entries)


def header(name: bytes = b"send", kind: int = 1, seqid: int = 7) -> bytes:
    return b"\x80\x01\0" + bytes([kind]) + text(name) + i32(seqid)


CREDENTIAL = struct_of(
    field(STRING, 1, text(b"shop")),
    field(STRING, 2, text(b"k1")),
    field(I64, 3, i64(1_714_000_000_000)),
    field(STRING, 4, text(b"s" * 32)),
)


def message(*fields: bytes, topic: bytes | None = b"pay") -> bytes:
    named = [field(STRING, 1, text(topic))] if topic is not None else []
    return struct_of(*named, *fields)


def send(*messages: bytes, more: bytes = b"", arguments_more: bytes = b"", credential: bytes = CREDENTIAL) -> bytes:
    """A send of `messages` with further bytes in the request struct or in the argument struct."""
    request = struct_of(field(STRUCT, 1, credential), field(LIST, 2, list_of(STRUCT, *messages)), more)
    return header() + struct_of(field(STRUCT, 1, request), arguments_more)


def pull(*fields: bytes, group: bytes = b"billing", credential: bytes = CREDENTIAL) -> bytes:
    """A pull with further fields in the request struct."""
    request = struct_of(field(STRUCT, 1, credential), field(STRING, 2, text(group)), *fields)
    return header(b"pull") + struct_of(field(STRUCT, 1, request))


def nested(kind: int, levels: int) -> bytes:
    """A value of `kind` with `levels` structs, lists or maps of its kind inside each other, itself counted."""
    if kind == STRUCT:
        return field(STRUCT, 1, b"") * (levels - 1) + STOP * levels
    if kind in (LIST, SET):
        return (bytes([kind]) + i32(1)) * (levels - 1) + bytes([BYTE]) + i32(0)
    return (bytes([BYTE, MAP]) + i32(1) + b"\1") * (levels - 1) + bytes([BYTE, BYTE]) + i32(0)

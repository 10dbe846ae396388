"""The property `penstock-headers`: headers of a Kafka record that cannot be properties, such as null or repeated ones.

Base64 of, for each header in its order:  u32 size of the name ‖ name in UTF-8 ‖ i32 size of the value, −1: null ‖ value
(little-endian).
"""

import base64
import binascii
import struct

from common.kafka.records import Headers

_SIZES = struct.Struct("<i")
NULL = -1


def encode_headers(headers: Headers) -> bytes:
    """The property's value."""
    parts = []
    for name, value in headers:
        text = name.encode("utf-8", "surrogatepass")
        parts += [_SIZES.pack(len(text)), text, _SIZES.pack(NULL if value is None else len(value)), value or b""]
    return base64.b64encode(b"".join(parts))


def decode_headers(text: bytes) -> list[tuple[str, bytes | None]]:
    """The headers of a property's value. Raises ValueError."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"penstock-headers: {error}") from error
    found: list[tuple[str, bytes | None]] = []
    at = 0
    while at < len(data):
        name, at = _text(data, at)
        value, at = _text(data, at)
        if name is None:
            raise ValueError("penstock-headers: a header without a name")
        found.append((name.decode("utf-8", "surrogatepass"), value))
    return found


def _text(data: bytes, at: int) -> tuple[bytes | None, int]:
    if at + _SIZES.size > len(data):
        raise ValueError("penstock-headers: it is cut off")
    (size,) = _SIZES.unpack_from(data, at)
    at += _SIZES.size
    if size == NULL:
        return None, at
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"penstock-headers: a text of {size} bytes at byte {at} of {len(data)}")
    return data[at : at + size], at + size

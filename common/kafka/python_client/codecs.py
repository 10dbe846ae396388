"""Compressed records of Kafka's batches. Snappy, LZ4 and Zstandard by cramjam: kafka-python brings none of them."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
from kafka import errors

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL = b"\x82SNAPPY\0"
"""Begins a stream of blocks as Java writes it: 8 bytes of versions, then blocks, each u32 size (big-endian) ‖ bytes."""
XERIAL_HEAD = 16


def decompress(codec: int, data: bytes) -> bytes:
    """Raises CorruptRecordError, UnsupportedCodecError."""
    found = _CODECS.get(codec)
    if found is None:
        raise errors.UnsupportedCodecError(f"a batch with compression {codec}, which Kafka did not have")
    try:
        return bytes(found(data))
    except (OSError, EOFError, zlib.error, cramjam.DecompressionError, ValueError) as fault:
        raise errors.CorruptRecordError(f"a batch that cannot be decompressed: {fault}") from fault


def _snappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in _blocks(data))


def _blocks(data: bytes) -> Iterator[bytes]:
    at = XERIAL_HEAD
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise ValueError(f"a block of {size} bytes where {len(data) - at} are left")
        yield data[at : at + size]
        at += size


_CODECS: dict[int, Callable[[bytes], Any]] = {
    GZIP: gzip.decompress, SNAPPY: _snappy, LZ4: cramjam.lz4.decompress, ZSTD: cramjam.zstd.decompress,
}  # fmt: skip

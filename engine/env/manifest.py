"""What RocksDB's MANIFEST looks like, checked before RocksDB reads it.

RocksDB trusts the type of a record before its checksum: one flipped bit that makes a record look like one of a recycled file has
its reader go round for ever, and the engine would neither start nor say why (seen by `make flips`). The format is that of LevelDB's log:
blocks of 32 KiB, in them records of checksum (4 bytes, CRC32C of type and payload, masked), length (2), type (1) and payload, all
little-endian. No record crosses a block; the last bytes of one, too few for a header, are zeros.
"""

import struct
from pathlib import Path

import google_crc32c

from engine.errors import StoreDamagedError

BLOCK = 32_768
HEADER = struct.Struct("<IHB")
FULL, LAST = 1, 4
"""All types in between are parts of a record, too; those above are of write-ahead logs, which we do not keep."""

MASK_DELTA = 0xA282EAD8


def check_manifest(folder: str) -> None:
    """Verify the MANIFEST that CURRENT names. What is not there, or ends within a record as after a crash, is for RocksDB to judge.

    Raises:
        StoreDamagedError: a record does not verify.
    """
    try:
        path = Path(folder) / (Path(folder) / "CURRENT").read_text("ascii").strip()
        data = path.read_bytes()
    except (OSError, ValueError):
        return
    for block in range(0, len(data), BLOCK):
        at, end = block, min(block + BLOCK, len(data))
        while at + HEADER.size <= end:
            checksum, size, kind = HEADER.unpack_from(data, at)
            if checksum == size == kind == 0:
                break  # allocated ahead
            stop = at + HEADER.size + size
            if stop > end and end == len(data):
                return
            if not FULL <= kind <= LAST or stop > end or checksum != masked_checksum(data[at + HEADER.size - 1 : stop]):
                raise StoreDamagedError(str(path), at, size, f"the record at {at} does not verify")
            at = stop


def masked_checksum(data: bytes) -> int:
    """As a record carries it: a checksum of bytes that hold checksums themselves would be weak."""
    value = google_crc32c.value(data)
    return (((value >> 15) | (value << 17)) + MASK_DELTA) & 0xFFFFFFFF

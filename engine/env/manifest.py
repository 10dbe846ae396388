"""Check of RocksDB's MANIFEST before RocksDB reads it.

RocksDB uses a record's type before it checks the checksum. One flipped bit that turns a record into one of a recycled
file makes its reader loop for ever: the engine would neither start nor report why (found by `make flips`).

The format is that of LevelDB's log: blocks of 32 KiB with records of checksum (4 bytes, CRC32C of type and payload,
masked), length (2), type (1) and payload, all little-endian. No record crosses a block. The last bytes of a block, too
few for a header, are zero.
"""

import struct

import google_crc32c

from engine.errors import StoreDamagedError

BLOCK = 32_768
HEADER = struct.Struct("<IHB")
FULL, LAST = 1, 4
"""The types in between are parts of a record, too.

Higher ones belong to write-ahead logs, which the engine does not keep.
"""

MASK_DELTA = 0xA282EAD8


def check_manifest(path: str, data: bytes) -> None:
    """Verify the bytes of the MANIFEST at `path`. An end within a record, as after a crash, is left to RocksDB.

    Raises:
        StoreDamagedError: a record does not verify.
    """
    for block in range(0, len(data), BLOCK):
        at, end = block, min(block + BLOCK, len(data))
        while at + HEADER.size <= end:
            checksum, size, kind = HEADER.unpack_from(data, at)
            if checksum == size == kind == 0:
                break  # allocated, not written yet
            stop = at + HEADER.size + size
            if stop > end and end == len(data):
                return
            if not FULL <= kind <= LAST or stop > end or checksum != masked_checksum(data[at + HEADER.size - 1 : stop]):
                raise StoreDamagedError(path, at, size, f"the record at {at} does not verify")
            at = stop


def masked_checksum(data: bytes) -> int:
    """The checksum as stored. The mask keeps a checksum over bytes that contain checksums from being weak."""
    value = google_crc32c.value(data)
    return (((value >> 15) | (value << 17)) + MASK_DELTA) & 0xFFFFFFFF

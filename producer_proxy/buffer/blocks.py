"""The bytes of the disk buffer's files, and of dead-letter entries; docs/design/0015-fallback-buffer.md explains them.

    segment  %020d.buf, named by its position     16-byte head: "PSTKBUF1" ‖ u64 position; then blocks, each at a
                                                  multiple of 8
    block    0 u32 crc32c (seeded by the block's position, over bytes 4..size) ‖ 4 u32 size ‖ 8 u16 magic 0x4642
             ‖ 10 u8 kind ‖ 11 u8 0 ‖ 12 u32 0 ‖ 16 payload
             payload of kind 1: an entry; of kind 2: i64 dead-lettered-at ‖ u16 reason size ‖ reason ‖ an entry
    done     %020d.done beside its segment        8 bytes per drained entry: u32 offset in the segment ‖ u32 crc32c of
                                                  its position
    dead     dead.buf                             like a segment at position 0, blocks of kind 2

Little-endian. Position: the segment's own plus the offset in its file.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

SEGMENT_HEAD = struct.Struct("<8sQ")
SEGMENT_MAGIC = b"PSTKBUF1"
BLOCK_HEAD = struct.Struct("<IIHBBI")
BLOCK_MAGIC = 0x4642
ENTRY, DEAD = 1, 2
BLOCK_BYTES_MAX = 32 << 20
_U64 = struct.Struct("<Q")
_DONE = struct.Struct("<II")
DONE_BYTES = _DONE.size


class Block(NamedTuple):
    """A valid block at `offset` of its file."""

    offset: int
    kind: int
    payload: bytes
    size: int


class Gap(NamedTuple):
    """Bytes that are not a block.

    `torn`: at the end of the file, cut off or never written because of a crash; else they were damaged.
    """

    offset: int
    size: int
    torn: bool


def padded(size: int) -> int:
    return size + -size % 8


def pack_block(kind: int, position: int, payload: bytes) -> bytes:
    """A block with its padding."""
    size = BLOCK_HEAD.size + len(payload)
    rest = BLOCK_HEAD.pack(0, size, BLOCK_MAGIC, kind, 0, 0)[4:] + payload
    return struct.pack("<I", _checksum(position, rest)) + rest + bytes(-size % 8)


def block_at(data: bytes, offset: int, position: int) -> Block | None:
    """The valid block at `offset` of `data`, which is at `position` of the log; None: the block is invalid."""
    if offset + BLOCK_HEAD.size > len(data):
        return None
    checksum, size, magic, kind, _, _ = BLOCK_HEAD.unpack_from(data, offset)
    if magic != BLOCK_MAGIC or not BLOCK_HEAD.size <= size <= BLOCK_BYTES_MAX or offset + size > len(data):
        return None
    if _checksum(position, data[offset + 4 : offset + size]) != checksum:
        return None
    return Block(offset, kind, data[offset + BLOCK_HEAD.size : offset + size], size)


def size_of(head: bytes) -> int:
    """The size of the block that begins with these bytes, as it says, within the bound; 0: they are too few."""
    return min(BLOCK_HEAD.unpack_from(head)[1], BLOCK_BYTES_MAX) if len(head) >= BLOCK_HEAD.size else 0


def blocks(data: bytes, base: int) -> Iterator[Block | Gap]:
    """Scan a file at position `base`: its valid blocks, and the gaps between them.

    After an invalid block the next valid one is searched at every multiple of 8. The checksum covers the position, so
    stale or copied bytes never pass for a block.
    """
    at = SEGMENT_HEAD.size
    while at < len(data):
        block = block_at(data, at, base + at)
        if block is None:
            following = _next_good(data, at, base)
            yield Gap(at, (following or len(data)) - at, torn=following is None and not _is_whole(data, at))
            if following is None:
                return
            at = following
        else:
            yield block
            at += padded(block.size)


def _is_whole(data: bytes, at: int) -> bool:
    """Whether a block was written whole: its head fits the bytes that are left, and its last bytes are there.

    An invalid block that was written whole was damaged later.
    """
    if at + BLOCK_HEAD.size > len(data):
        return False
    _, size, magic, _, _, _ = BLOCK_HEAD.unpack_from(data, at)
    return magic == BLOCK_MAGIC and at + padded(size) <= len(data) and any(data[at + size - 8 : at + size])


def _next_good(data: bytes, at: int, base: int) -> int | None:
    mark = struct.pack("<H", BLOCK_MAGIC)
    found = data.find(mark, at + 16)
    while found >= 0:
        start = found - 8
        if start % 8 == 0 and block_at(data, start, base + start) is not None:
            return start
        found = data.find(mark, found + 1)
    return None


def pack_done(position: int, offset: int) -> bytes:
    return _DONE.pack(offset, google_crc32c.value(_U64.pack(position)))


def done_offsets(data: bytes, base: int) -> set[int]:
    """The drained entries of the segment at `base`.

    A damaged mark is ignored: its entry is drained again under the same id.
    """
    whole = len(data) - len(data) % _DONE.size
    return {
        offset
        for offset, checksum in _DONE.iter_unpack(data[:whole])
        if google_crc32c.value(_U64.pack(base + offset)) == checksum
    }


def pack_dead(at_ms: int, reason: str, entry: bytes) -> bytes:
    text = reason.encode()[:1000]
    return struct.pack("<qH", at_ms, len(text)) + text + entry


def unpack_dead(payload: bytes) -> tuple[int, str, bytes]:
    """Decode the payload of a kind 2 block: (dead-lettered-at, reason, entry). Raises ValueError."""
    if len(payload) < 10:
        raise ValueError(f"a dead letter of {len(payload)} bytes")
    at_ms, size = struct.unpack_from("<qH", payload)
    return at_ms, payload[10 : 10 + size].decode("utf-8", "replace"), payload[10 + size :]


def _checksum(position: int, rest: bytes) -> int:
    return google_crc32c.extend(google_crc32c.value(_U64.pack(position)), rest)

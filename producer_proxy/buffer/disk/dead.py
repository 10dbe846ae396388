"""The dead-letter list of a disk buffer: entries that the engine will never take, each with the reason.

For `penstock buffer export`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.entry import BufferEntry, decode

NAME = "dead.buf"
BYTES_MAX = 256 << 20


class DeadEntry(NamedTuple):
    at_ms: int
    reason: str
    entry: BufferEntry


class DeadList:
    """Appends to DIR/dead.buf. Its entries stay until an operator removes the file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.count = sum(1 for _ in read(directory)) if self._path.exists() else 0

    def append(self, buried: list[DeadEntry]) -> None:
        """Append entries, durably on return; blocks the thread. Raises OSError, also when the list is full."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            data = b"" if size else blocks.SEGMENT_HEAD.pack(blocks.SEGMENT_MAGIC, 0)
            start = blocks.padded(size)  # a torn end stays in the file as a gap
            for each in buried:
                payload = blocks.pack_dead(each.at_ms, each.reason, each.entry.encode())
                data += blocks.pack_block(blocks.DEAD, start + len(data), payload)
            if start + len(data) > BYTES_MAX:
                raise OSError(28, f"{self._path}: the dead-letter list is full: export it, then remove the file")
            if os.pwrite(file, data, start) != len(data):
                raise OSError(28, f"{self._path}: no space")
            os.fsync(file)
        finally:
            os.close(file)
        self.count += len(buried)


def read(directory: Path) -> Iterator[DeadEntry]:
    """All readable entries of a directory's list."""
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return
    for block in blocks.blocks(data, 0):
        if isinstance(block, Block) and block.kind == blocks.DEAD:
            at_ms, reason, entry = blocks.unpack_dead(block.payload)
            yield DeadEntry(at_ms, reason, decode(entry))

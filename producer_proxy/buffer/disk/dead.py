"""The dead-letter list of a disk buffer: entries that the engine will never take, each with the reason. For `penstock buffer export`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.entry import Entry, decode

NAME = "dead.buf"
BYTES_MAX = 256 << 20


class Buried(NamedTuple):
    at_ms: int
    reason: str
    entry: Entry


class DeadList:
    """Appends to DIR/dead.buf. What is in it goes when a person removes the file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.count = sum(1 for _ in read(directory)) if self._path.exists() else 0

    def append(self, buried: list[Buried]) -> None:
        """Durable on return; blocks the thread. Raises OSError, also when the list is full."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            data = b"" if size else blocks.SEGMENT_HEAD.pack(blocks.SEGMENT_MAGIC, 0)
            start = blocks.padded(size)  # a torn end stays behind as a gap
            for each in buried:
                payload = blocks.pack_buried(each.at_ms, each.reason, each.entry.encode())
                data += blocks.pack_block(blocks.BURIED, start + len(data), payload)
            if start + len(data) > BYTES_MAX:
                raise OSError(28, f"{self._path}: the dead-letter list is full; export and remove it")
            if os.pwrite(file, data, start) != len(data):
                raise OSError(28, f"{self._path}: no space")
            os.fsync(file)
        finally:
            os.close(file)
        self.count += len(buried)


def read(directory: Path) -> Iterator[Buried]:
    """All that can be read of a directory's list."""
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return
    for block in blocks.blocks(data, 0):
        if isinstance(block, Block) and block.kind == blocks.BURIED:
            at_ms, reason, entry = blocks.unpack_buried(block.payload)
            yield Buried(at_ms, reason, decode(entry))

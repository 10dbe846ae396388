"""Intents of the last moment, in a file that is mapped into memory: a dual write that succeeds writes nothing to a segment.

    mapped   AREAS areas of AREA_BYTES, one per batch of the tap   "PSTKOPEN" ‖ u64 sequence ‖ u32 crc32c of both ‖ u32 0,
             then blocks as in a segment, whose positions are sequence · AREA_BYTES + their address in the area

Little-endian. An area without a valid head is free. Its blocks end at the first invalid one: those of an earlier use have
other positions. The kernel keeps what a killed process has stored there, as it keeps what was written to a file; a power
cut may lose it, as it loses what was not synced. So an intent that stays for longer than a moment goes to a segment.
"""

import logging
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import google_crc32c

from common.limited_log import LimitedLog
from producer_proxy.buffer.blocks import ENTRY, block_at, pack_block, padded
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode
from producer_proxy.journal.native import AreaMap

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.journal"))

EncodeIntents = Callable[[int, int], bytes | memoryview]
"""Encodes intents, given the position of the first block and the time in Unix ms."""

NAME = "mapped"
AREAS, AREA_BYTES = 128, 256 << 10
AREA_HEAD = struct.Struct("<8sQII")
AREA_MAGIC = b"PSTKOPEN"
MOMENT_S = 1.0
"""Age at which intents go to a segment."""
RETRY_S = 5.0


class MappedIntents:
    """The areas of one journal. The file is made when the first batch comes, and removed by an orderly end.

    Args:
        write: called as (encode, count): writes intents to a segment; whether it could.
        on_first: called before the first one is here. May raise OSError.
    """

    def __init__(
        self, directory: Path, write: Callable[[EncodeIntents, int], bool], on_first: Callable[[], None]
    ) -> None:
        self._directory, self._path, self._write, self._on_first = directory, directory / NAME, write, on_first
        self._map: Any = None
        self._retry_at = 0.0
        self.batches: dict[Any, float] = {}
        """Batches in areas, in the order in which they were begun, with the monotonic time of that."""

    def begin(self, batch: Any) -> bool:
        """Give a batch an area; False: there is none now."""
        if self._map is None and (time.monotonic() < self._retry_at or not self._open()):
            return False
        if (found := self._map.take()) is None:
            return False
        batch.enter(self._map, *found)
        self.batches[batch] = time.monotonic()
        return True

    def end(self, batch: Any) -> None:
        """Release a batch's area: nothing is to be done about its intents any more, or they are in a segment."""
        self.batches.pop(batch, None)
        batch.leave()

    def keep(self, batch: Any) -> bool:
        """Bring a batch's intents to a segment, after those of all batches before it; whether they are there.

        So the positions in the segments are in the order of sending.
        """
        if batch.base is None and batch in self.batches:
            self.keep_older(self.batches[batch])
        return batch.base is not None

    def begun_before(self, at: float) -> list[Any]:
        """Batches that were begun before this monotonic time, oldest first."""
        return [each for each, begun in self.batches.items() if begun < at]

    def keep_older(self, begun: float | None = None) -> bool:
        """As `keep`, of all batches that were begun up to this monotonic time; None: of all. Whether all are there."""
        for each, at in list(self.batches.items()):
            if begun is not None and at > begun:
                break
            each.cut()
            if each not in self.batches:  # what was called for it, or for one before it, has kept or ended it
                continue
            if not self._write(each.moved, each.count):
                each.base = None
                return False
            self.end(each)
        return True

    def close(self) -> None:
        """Release the memory, and the file when nothing is left in it."""
        if self._map is not None:
            is_needed = bool(self.batches)
            self._map.close()
            if not is_needed:
                self._path.unlink(missing_ok=True)

    def take_over(self) -> tuple[list[tuple[int, BufferEntry]], int | None]:
        """Bring what an earlier process has left here to a segment.

        Returns:
            The entries with their positions; and since when intents are missing, in Unix ms: None: none are. Some are when
            a segment cannot be written, or an entry is damaged.
        """
        try:
            payloads = list(left(self._directory))
            entries = [decode(each) for each in payloads]
        except (OSError, EntryError):
            return [], int(self._path.stat().st_mtime * 1000)
        positions: list[int] = []

        def encode(position: int, now_ms: int) -> bytes:
            data = bytearray()
            for payload in payloads:
                positions.append(position + len(data))
                data += pack_block(ENTRY, positions[-1], payload)
            return bytes(data)

        if payloads and not self._write(encode, len(payloads)):
            return [], min(each.accepted_at_ms for each in entries)
        self._path.unlink(missing_ok=True)
        return list(zip(positions, entries, strict=True)), None

    def _open(self) -> bool:
        try:
            self._on_first()
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, AREAS * AREA_BYTES)
                self._map = AreaMap(file, AREAS)
            finally:
                os.close(file)
        except OSError as error:
            limited.error("journal=%s: no file can be mapped, each append is written: %s", self._directory, error)
            self._retry_at = time.monotonic() + RETRY_S
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return False
        return True


def left(directory: Path) -> Iterator[bytes]:
    """The entries in the areas, those of each area in their order, the areas in the order of their use. Raises OSError."""
    areas = []
    with suppress(FileNotFoundError), (directory / NAME).open("rb") as file:
        while head := file.read(AREA_HEAD.size):
            rest = AREA_BYTES - len(head)
            if (sequence := _sequence_of(head)) is not None:
                areas.append((sequence, head + file.read(rest)))
            else:
                file.seek(rest, os.SEEK_CUR)
    for sequence, area in sorted(areas):
        at = AREA_HEAD.size
        while (block := block_at(area, at, sequence * AREA_BYTES + at)) is not None:
            yield block.payload
            at += padded(block.size)


def _sequence_of(head: bytes) -> int | None:
    """The sequence of a used area; None: it is free."""
    if len(head) < AREA_HEAD.size:
        return None
    magic, sequence, checksum, _ = AREA_HEAD.unpack(head)
    return sequence if magic == AREA_MAGIC and google_crc32c.value(head[:16]) == checksum else None

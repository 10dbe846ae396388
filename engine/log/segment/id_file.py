"""File of a sealed segment's checked ids: a start fills the window of ids from it, without reading messages.

Only segments with batches that have the flag "check ids" have one. The segment's index file says how many ids it holds
and when the last of them expires. When it is missing or damaged it is rebuilt from the segment.
"""

from collections.abc import Callable
from typing import NamedTuple

from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import ID_ENTRY, ID_HEADER, ID_MAGIC, segment_name
from engine.log.segment.last_batch import LastBatch
from engine.log.segment.native import BatchReader, IdWindow, SegmentIndex, crc32c
from engine.log.segment.segment import Segment
from engine.log.segment.window_scan import SECTOR, StretchKind, WindowScan

SUFFIX = ".dup"
STEP_BYTES = 128 << 10
"""Checking one step holds the GIL, so more would delay the loop."""


class IdSummary(NamedTuple):
    """Summary of the segment's checked ids in its index file."""

    count: int  # type: ignore[assignment]
    expire_s: int


NO_IDS = IdSummary(0, 0)


def id_path(directory: str, base: int) -> str:
    """Path of the segment's id file."""
    return f"{directory}/{segment_name(base).removesuffix('.seg')}{SUFFIX}"


class CollectedIds(NamedTuple):
    """Entries of a segment's checked batches. `unread`: (address, size) of the bytes that the disk could not read."""

    entries: bytes
    unread: list[tuple[int, int]]


def collect_ids(segment: Segment, again: Callable[[], bool] = lambda: False) -> CollectedIds:
    """Read the segment up to its end and return the entries of its checked batches. Blocks; changes nothing.

    Args:
        again: see WindowScan.
    """
    ids = IdWindow(segment.header.log_id, 0)
    batches = BatchReader(segment.header.log_id)
    scan = WindowScan(
        batches, segment.file, segment.base, SegmentIndex(segment.base, 0), window_bytes=STEP_BYTES, again=again
    )
    scan.limit = min(scan.limit, segment.end_at)
    entries, unread = [], []
    try:
        for stretch in scan.stretches():
            scan.go_on_with(SegmentIndex(segment.base, 0))
            if stretch.kind is StretchKind.GOOD:
                entries.append(ids.collect(scan.room, stretch.at, stretch.end))
            elif stretch.kind is StretchKind.BAD and _meets(scan.unreadable, stretch.at, stretch.end):
                unread.append((stretch.at, stretch.end - stretch.at))
    finally:
        scan.close()
    if _meets(scan.unreadable, scan.end_at, scan.limit):
        unread.append((scan.end_at, scan.limit - scan.end_at))
    return CollectedIds(b"".join(entries), unread)


def _meets(sectors: list[int], at: int, end: int) -> bool:
    """Whether one of the sectors has bytes from `at` to before `end`."""
    return at < end and any(sector < end and at < sector + SECTOR for sector in sectors)


def write_ids(env: Env, segment: Segment, entries: bytes, last: LastBatch) -> IdSummary:
    """Write the file, durable on return except for its name. Blocks.

    Args:
        last: the segment's last batch.
    """
    count = len(entries) // ID_ENTRY.size
    fields = (ID_MAGIC, segment.header.log_id, segment.base, last.at, last.crc, count, crc32c(entries), 0)
    head = ID_HEADER.pack(*fields, 0)[:-4]
    path = segment.path.removesuffix(".seg") + SUFFIX
    file = env.open(path + ".tmp", create=True)
    try:
        left, at = memoryview(head + crc32c(head).to_bytes(4, "little") + entries), 0
        while left.nbytes:
            taken = file.write_at(left[: 1 << 20], at)
            left, at = left[taken:], at + taken
        file.sync()
    finally:
        file.close()
    env.rename(path + ".tmp", path)
    return summary_of(entries)


def summary_of(entries: bytes) -> IdSummary:
    """Their number, and when the last of them expires."""
    return IdSummary(
        len(entries) // ID_ENTRY.size, max((entry[3] for entry in ID_ENTRY.iter_unpack(entries)), default=0)
    )


def load_ids(env: Env, directory: str, base: int, last_at: int, last_crc: int) -> bytes:
    """The entries.

    Raises CorruptionError when the file is missing, damaged, or not of the segment with that last batch.
    """
    path = id_path(directory, base)
    if not env.exists(path):
        raise CorruptionError(path, 0, 0, "the id file is missing")
    file = env.open(path)
    try:
        data = file.read_at(file.size(), 0)
    except OSError as error:
        raise CorruptionError(path, 0, 0, f"it cannot be read: {error}") from error
    finally:
        file.close()
    head, entries = data[: ID_HEADER.size], data[ID_HEADER.size :]
    if len(head) < ID_HEADER.size or crc32c(head[:-4]).to_bytes(4, "little") != head[-4:]:
        raise CorruptionError(path, 0, len(data), "its header does not verify")
    magic, _, found_base, found_at, found_crc, count, body_crc, _, _ = ID_HEADER.unpack(head)
    if magic != ID_MAGIC or (found_base, found_at, found_crc) != (base, last_at, last_crc):
        raise CorruptionError(path, 0, len(data), "it belongs to another segment, or to an earlier state of this one")
    if len(entries) != count * ID_ENTRY.size or crc32c(entries) != body_crc:
        raise CorruptionError(path, ID_HEADER.size, len(entries), "it does not verify")
    return entries

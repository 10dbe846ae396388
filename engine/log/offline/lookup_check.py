"""Checks lookup files against their segment."""

from engine.errors import CorruptionError
from engine.log.lookup_index.lookup_file import (
    BLOCK,
    BLOCK_ENTRIES,
    BLOCKS_A_WRITE,
    FAMILIES,
    Family,
    LookupFile,
    entries_of,
    file_title,
    lookup_path,
)
from engine.log.lookup_index.maker import ENTRIES_MAX
from engine.log.lookup_index.native import TermCollector
from engine.log.lookup_index.segment_read import feed_batches
from engine.log.offline.directory import Directory, SegmentFile
from engine.log.segment.index_file import IndexHeader, read_index_header
from engine.log.segment.native import crc32c


def lookup_faults(directory: Directory, segment: SegmentFile, *, whole: bool) -> list[tuple[str, str]]:
    """[(path, fault)] of the segment's lookup files. Blocks; reads the segment once per file.

    Args:
        whole: nothing of the segment is damaged, so its files must have exactly its terms.
    """
    folder, faults = f"{directory.path}/log", []
    try:
        index = read_index_header(directory.env, folder, segment.base)
    except CorruptionError:
        return []  # the index is rebuilt first
    for family in FAMILIES.values():
        path = lookup_path(folder, segment.base, family)
        if not directory.env.exists(path):
            continue
        try:
            found = _entries_found(directory, segment, family, index)
            if whole and found != _entries_wanted(directory, segment, family, index):
                faults.append((path, "its entries are not those of the segment"))
        except CorruptionError as error:
            faults.append((path, str(error).partition(" bytes lost: ")[2]))
    return faults


def _entries_found(directory: Directory, segment: SegmentFile, family: Family, index: IndexHeader) -> tuple[int, int]:
    """(number, checksum) of the file's entries. Raises CorruptionError."""
    title = file_title(f"{directory.path}/log", directory.log_id, segment.base, family, index)
    names = LookupFile(directory.env, title)
    try:
        for _ in names.check():
            pass
        crc = 0
        for number in range(1, names.summary.blocks + 1):
            crc = crc32c(names.packed(number), crc)
        return names.summary.entries, crc
    finally:
        names.close()


def _entries_wanted(directory: Directory, segment: SegmentFile, family: Family, index: IndexHeader) -> tuple[int, int]:
    """(number, checksum) of the entries that the segment calls for."""
    collector = TermCollector(directory.log_id, segment.base, family.number, ENTRIES_MAX)
    file = directory.open(segment)
    low: int | None = 0
    total = crc = 0
    try:
        while low is not None:
            collector.begin(low)
            for _ in feed_batches(directory.batches(), file, segment.base, index.end_at, collector):
                pass
            count, low = collector.finish()
            total += count
            for first in range(0, count, BLOCKS_A_WRITE * BLOCK_ENTRIES):
                data = collector.blocks(first, BLOCKS_A_WRITE, b"", 0)
                for at in range(0, len(data), BLOCK):
                    crc = crc32c(entries_of(data[at : at + BLOCK]), crc)
    finally:
        file.close()
    return total, crc

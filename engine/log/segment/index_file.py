"""Index file beside a sealed segment: a sorted directory of queues and their entries. Written once, read by binary
search.

Its header names the log, the segment and the last batch it belongs to, so a file of another segment, or of an earlier
state of this one, is rejected.
"""

import logging
from typing import NamedTuple

from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import (
    DIRECTORY_ENTRY,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_MAGIC,
    segment_name,
)
from engine.log.segment.id_file import NO_IDS, IdSummary
from engine.log.segment.last_batch import LastBatch
from engine.log.segment.native import SealedIndex, SegmentIndex, crc32c
from engine.log.segment.segment import Segment, last_crc_of

logger = logging.getLogger(__name__)


def index_path(segment: Segment) -> str:
    """Path of the segment's index file."""
    return segment.path.removesuffix(".seg") + ".idx"


class IndexHeader(NamedTuple):
    """Summary of a segment in its index file."""

    created_ms: int
    end_at: int
    last_at: int
    last_crc: int
    ids: IdSummary


def _read(env: Env, path: str, size: int | None = None) -> bytes:
    """The file's bytes, all or the first. Not mapped: a bad sector under a mapping would end the process by SIGBUS.

    Raises CorruptionError when it is missing or the disk cannot read it; OSError when it cannot be opened.
    """
    if not env.exists(path):
        raise CorruptionError(path, 0, 0, "the index file is missing")
    file = env.open(path)
    try:
        return file.read_at(file.size() if size is None else size, 0)
    except OSError as error:
        raise CorruptionError(path, 0, 0, f"the index file cannot be read: {error}") from error
    finally:
        file.close()


def read_index_header(env: Env, directory: str, base: int) -> IndexHeader:
    """Read the file's header alone. Raises CorruptionError when it is missing or damaged."""
    path = f"{directory}/{segment_name(base).removesuffix('.seg')}.idx"
    head = _read(env, path, INDEX_HEADER.size)
    if len(head) < INDEX_HEADER.size or crc32c(head[:-4]).to_bytes(4, "little") != head[-4:]:
        raise CorruptionError(path, 0, len(head), "the index file's header does not verify")
    _, _, _, end_at, created_ms, _, _, last_at, last_crc, _, ids, expire_s, _ = INDEX_HEADER.unpack(head)
    return IndexHeader(created_ms, end_at, last_at, last_crc, IdSummary(ids, expire_s))


def write_index(
    env: Env, segment: Segment, index: SegmentIndex, last: LastBatch, ids: IdSummary = NO_IDS
) -> SealedIndex:
    """Write the file, durable on return, and return the index as read from it. Blocks.

    Args:
        last: the segment's last batch.
        ids: summary of its id file.
    """
    directory_count, entry_count, body = index.encode()
    fields = (
        INDEX_MAGIC, segment.header.log_id, segment.base, segment.end_at, segment.header.created_ms,
        directory_count, entry_count, last.at, last.crc, crc32c(body), *ids,
    )  # fmt: skip
    head = INDEX_HEADER.pack(*fields, 0)[:-4]
    path = index_path(segment)
    file = env.open(path + ".tmp", create=True)
    try:
        data = memoryview(head + crc32c(head).to_bytes(4, "little"))
        at = 0
        for part in (data, memoryview(body)):
            while part.nbytes:
                taken = file.write_at(part[: 1 << 20], at)
                part = part[taken:]
                at += taken
        file.sync()
    finally:
        file.close()
    env.rename(path + ".tmp", path)
    env.sync_directory(path.rsplit("/", 1)[0])
    return _sealed(segment, directory_count, entry_count, body)


def index_in_memory(segment: Segment, index: SegmentIndex) -> SealedIndex:
    """The index as `write_index` returns it, for a segment whose index file cannot be written now."""
    return _sealed(segment, *index.encode())


def _sealed(segment: Segment, directory_count: int, entry_count: int, body: bytes) -> SealedIndex:
    return SealedIndex(
        segment.base, segment.header.created_ms, segment.base + segment.end_at, directory_count, entry_count, body
    )


def load_index(env: Env, segment: Segment) -> SealedIndex:
    """Open and verify the file.

    Raises CorruptionError when it is missing, damaged or not of this segment as it is now.
    """
    path = index_path(segment)
    view = memoryview(_read(env, path))
    head = bytes(view[: INDEX_HEADER.size])
    if len(head) < INDEX_HEADER.size or crc32c(head[: INDEX_HEADER.size - 4]) != INDEX_HEADER.unpack_from(head)[-1]:
        raise CorruptionError(path, 0, len(view), "the index file's header does not verify")
    magic, log_id, base, end_at, created_ms, directory_count, entry_count, last_at, last_crc, body_crc, _, _, _ = (
        INDEX_HEADER.unpack_from(head)
    )
    body = view[INDEX_HEADER.size :]
    if magic != INDEX_MAGIC or log_id != segment.header.log_id or base != segment.base:
        raise CorruptionError(path, 0, len(view), "the index file belongs to another segment")
    if last_crc_of(segment, last_at) not in (last_crc, None):
        raise CorruptionError(path, 0, len(view), "the index file belongs to an earlier state of its segment")
    if len(body) != directory_count * DIRECTORY_ENTRY.size + entry_count * INDEX_ENTRY.size or crc32c(body) != body_crc:
        raise CorruptionError(path, INDEX_HEADER.size, len(body), "the index file does not verify")
    segment.end_at = end_at
    if segment.is_header_made:
        segment.set_created(created_ms)
    return SealedIndex(base, created_ms, base + end_at, directory_count, entry_count, body)

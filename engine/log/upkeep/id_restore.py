"""Rebuilds the de-duplication window at start-up, from the id files of sealed segments that are young enough."""

import logging
from collections.abc import Callable

from common.ids import ID_WINDOW_MS_MAX
from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.segment.id_file import collect_ids, id_path, load_ids, summary_of, write_ids
from engine.log.segment.index_file import IndexHeader, read_index_header
from engine.log.segment.last_batch import LastBatch
from engine.log.segment.native import BatchReader, IdWindow
from engine.log.segment.segment import Segment
from engine.log.write.sealer import ensure_index

logger = logging.getLogger(__name__)
EXPIRE_S_MAX = 0xFFFFFFFF


def restore_window(
    env: Env, directory: str, bases: list[int], window: IdWindow, now_ms: int,
    open_at: Callable[[int], Segment], on_whole: Callable[[Segment], None], again: Callable[[], bool],
) -> None:  # fmt: skip
    """Fill the window from the sealed segments' id files, as far back as it reaches and has room. Blocks for their
    size.

    Args:
        bases: bases of the sealed segments, in order.
        now_ms: the window's own time.
        open_at: opens a segment, whatever the state of its header.
        on_whole: see ensure_index.
        again: see WindowScan.
    """
    chosen: list[tuple[int, IndexHeader]] = []
    room, old = window.capacity, 0
    for base in reversed(bases):
        header = _header(env, directory, base, open_at, on_whole, again)
        # A segment is created while the second before it still takes messages, so only those before two old ones are
        # old.
        old = old + 1 if header.created_ms < now_ms - ID_WINDOW_MS_MAX else 0
        if header.ids.expire_s * 1000 > now_ms:
            chosen.append((base, header))
            room -= header.ids.count
        if room <= 0 or old > 2:
            break
    for base, header in reversed(chosen):
        window.load(_entries(env, directory, base, header, open_at, again), now_ms)


def _header(
    env: Env, directory: str, base: int, open_at: Callable[[int], Segment], on_whole: Callable[[Segment], None],
    again: Callable[[], bool],
) -> IndexHeader:  # fmt: skip
    try:
        return read_index_header(env, directory, base)
    except CorruptionError:
        segment = open_at(base)
        try:
            ensure_index(env, BatchReader(segment.header.log_id), segment, on_whole=on_whole, again=again)
            try:
                return read_index_header(env, directory, base)
            except CorruptionError:  # it cannot be written now
                found = collect_ids(segment, again)
                ids = summary_of(found.entries)
                if found.unread:  # they may have later ones
                    ids = ids._replace(expire_s=EXPIRE_S_MAX)
                return IndexHeader(segment.header.created_ms, segment.end_at, 0, 0, ids)
        finally:
            segment.close()


def _entries(
    env: Env, directory: str, base: int, header: IndexHeader, open_at: Callable[[int], Segment],
    again: Callable[[], bool],
) -> bytes:  # fmt: skip
    try:
        return load_ids(env, directory, base, header.last_at, header.last_crc)
    except CorruptionError as error:
        logger.warning("file=%s: rebuilt from its segment, because %s", id_path(directory, base), error)
    segment = open_at(base)
    try:
        segment.end_at = header.end_at
        found = collect_ids(segment, again)
        for at, size in found.unread:
            logger.error(
                "file=%s position=%d: the ids in %d bytes are unknown, and copies of their messages may be stored: the "
                "disk cannot read them", segment.path, base + at, size,
            )  # fmt: skip
        try:
            if not found.unread and header.last_at:  # else the next start tries again
                write_ids(env, segment, found.entries, LastBatch(header.last_at, header.last_crc))
        except OSError as error:
            logger.error("file=%s: not written: %s", id_path(directory, base), error)
    finally:
        segment.close()
    return found.entries

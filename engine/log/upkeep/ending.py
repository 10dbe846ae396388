"""Ends of segments in recovery: the last one is cut after its last batch, or left for the next one; full ones are sealed."""

import logging
from collections.abc import Iterator
from dataclasses import replace

from engine.env.base import Env, File
from engine.log.format import BATCH_HEADER_SIZE, END_UNKNOWN, NOT_BEGUN, SEGMENT_HEADER_SIZE
from engine.log.segment.index_file import index_in_memory
from engine.log.segment.last_batch import NO_BATCH
from engine.log.segment.recovery_scan import RecoveryScan
from engine.log.segment.segment import NO_ROOM, Segment, create_segment, replace_header
from engine.log.upkeep.recovered import Recovered
from engine.log.view import View
from engine.log.write.sealer import CHUNK, correct_directory, keep_index
from engine.log.write.syncer import sync_or_die

logger = logging.getLogger(__name__)

STEP_BYTES = 1 << 20


def cut(env: Env, segment: Segment) -> bool:
    """Make everything after the last valid batch zero. Returns whether there is room for the rest of the segment."""
    if segment.file.next_data(segment.end_at) is not None and _has_bytes(segment):
        logger.warning("file=%s position=%d: torn tail cut", segment.path, segment.base + segment.end_at)
    return clear_end(env, segment)


def clear_end(env: Env, segment: Segment) -> bool:
    """Make everything from the segment's end on zero, durably, before anything is written there.

    Otherwise stale bytes after the end could be read back as batches after the next crash. It can be repeated after
    a crash at any point. Returns whether there is room for the rest of the segment.
    """
    has_room = True
    if segment.file.next_data(segment.end_at) is not None:
        segment.file.truncate(segment.end_at)
    try:
        segment.file.allocate(segment.header.size)
    except OSError as error:
        if error.errno not in NO_ROOM:
            env.die(f"{segment.path}: the tail cannot be cut: {error}")
        # Its unused bytes may not be there when they are needed, so the log continues in the next segment.
        has_room = False
        logger.warning("file=%s: no room for the rest of the segment: it gets no more records", segment.path)
    sync_or_die(env, segment.file)
    return has_room


def _has_bytes(segment: Segment) -> bool:
    """Whether the segment's next bytes are other than zero, or cannot be read."""
    try:
        return any(segment.file.read_at(BATCH_HEADER_SIZE, segment.end_at))
    except OSError:
        return True


def is_fresh(segment: Segment) -> bool:
    """Whether nothing was ever appended to an empty segment, so that the log may go on in it.

    What a power cut has left of a roll would be damage once the segment is full.
    """
    if segment.header.previous_end not in (END_UNKNOWN, NOT_BEGUN):
        return False
    try:
        return not has_data(segment.file, SEGMENT_HEADER_SIZE)
    except OSError:
        return False


def data_of(file: File, at: int) -> Iterator[tuple[int, bytes]]:
    """The file's bytes from the address on, in steps; those that are only zeros are left out."""
    end = file.data_end()  # before any read, which would make unwritten room look written
    found = file.next_data(at)
    while found is not None and found < end:
        data = file.read_at(min(STEP_BYTES, end - found), found)
        if any(data):
            yield found, data
        found = file.next_data(found + len(data)) if data else None


def has_data(file: File, at: int) -> bool:
    """Whether the file has other bytes than zeros from the address on."""
    return next(data_of(file, at), None) is not None


def take_sealed(env: Env, view: View, state: Recovered, segment: Segment, scan: RecoveryScan) -> None:
    """Seal a scanned segment that gets no more batches, and tell the view of it. Blocks.

    Where the disk could not read it, batches may lie that a later start can read. Their queues do not continue at
    those offsets: see View.free_offset.
    """
    keep_index(env, segment, scan)
    segment.index = None
    if segment.is_partial:
        state.partial.add(segment.base)
        state.waited.add(segment.base)
    end_bytes = 0 if segment is state.active else segment.header.size - segment.end_at
    records = scan.records_unread_max(end_bytes)
    correct_directory(view, segment, records)
    if records:
        _note_whole(view, segment, scan)
    state.sealed.append(segment.base)


def _note_whole(view: View, segment: Segment, scan: RecoveryScan) -> None:
    """Tell the view which queues of the segment miss no record: their last batch in it lies after the lost bytes."""
    lost_to = max(each.position + each.bytes_lost for each in scan.damage) - segment.base
    sealed = segment.sealed
    assert sealed is not None
    for start in range(0, sealed.directory_count, CHUNK):
        queues = [(topic_id, queue) for topic_id, queue, _, _ in sealed.queues(start, CHUNK)]
        view.put_whole(segment.base, [queue for queue in queues if sealed.entries(*queue)[-1][1] >= lost_to])


def take_again(view: View, segment: Segment) -> None:
    """Correct what the view knows of the active segment if an earlier start, which could read only a part, has left it."""
    if segment.base in view.unread_segments():
        assert segment.index is not None
        segment.sealed = index_in_memory(segment, segment.index)
        correct_directory(view, segment)
        segment.sealed = None


def note_previous_end(env: Env, state: Recovered) -> None:
    """Complete the header of an empty active segment, whose bytes a power cut has taken: the log goes on in it.

    The segment before is on the disk: the checkpoint was written at its end, and nothing before it is replayed.
    """
    active = state.active
    assert active is not None
    if active.header.previous_end == NOT_BEGUN and active.end_at == SEGMENT_HEADER_SIZE:
        before = max((base for base in state.sealed if base < state.synced), default=active.base)
        end_at = state.synced - before if state.synced <= active.base else END_UNKNOWN
        replace_header(env, active, replace(active.header, previous_end=max(end_at, END_UNKNOWN)))


def leave(env: Env, directory: str, view: View, state: Recovered, scan: RecoveryScan, segment_bytes: int) -> None:
    """Continue in the next segment, since the active one was read in part: a sealed one can be read again later.

    Raises DiskFullError: there is no room for the next one. The log must not continue without it.
    """
    full = state.active
    assert full is not None
    created_ms = max(full.header.created_ms, scan.last.stored_ms)
    header = replace(
        full.header, base=full.next_base, epoch=state.epoch, size=segment_bytes, created_ms=created_ms,
        previous_end=full.end_at,
    )  # fmt: skip
    following = state.next
    if following is None:
        following = create_segment(env, directory, header)
    else:
        replace_header(env, following, replace(following.header, previous_end=full.end_at))
    following.open_index()
    take_sealed(env, view, state, full, scan)
    full.close()
    logger.warning("file=%s: the disk cannot read all of it: the log continues in %s", full.path, following.path)
    state.active, state.next, state.active_last = following, None, NO_BATCH
    state.active_ids, state.is_full = b"", False

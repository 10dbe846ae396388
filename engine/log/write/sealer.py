"""Sealing: a full segment is synced, its side files are written, and the view is brought up to date. Off the loop."""

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from common.limited_log import LimitedLog
from engine.env.background import Background
from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.segment.id_file import NO_IDS, IdSummary, collect_ids, write_ids
from engine.log.segment.ids import LEFT_S_MAX
from engine.log.segment.index_file import index_in_memory, load_index, write_index
from engine.log.segment.last_batch import LastBatch
from engine.log.segment.native import BatchReader
from engine.log.segment.recovery_scan import RecoveryScan, scan_segment
from engine.log.segment.segment import Segment
from engine.log.view import CHECKPOINT_KEY, Checkpoint, View, queue_key, queue_value
from engine.log.write.failed_sync import die_of_sync

limited = LimitedLog(logging.getLogger(__name__))

CHUNK = 256
"""Keys per write to the store. Building them holds the GIL, so more would delay the loop by as many microseconds."""


def seal(env: Env, segment: Segment, last: LastBatch) -> None:
    """Sync the segment, then write the file of its checked ids, if it has any, then its index file.

    Blocks for its size. A failed sync ends the process.
    """
    _sync(env, segment)
    _write_files(env, segment, last)


def _sync(env: Env, segment: Segment) -> None:
    try:
        segment.file.sync()
    except OSError as error:
        die_of_sync(env, segment.path, error)


def _write_files(env: Env, segment: Segment, last: LastBatch) -> None:
    assert segment.index is not None
    ids = _seal_ids(env, segment, last) if segment.index.checked else NO_IDS
    segment.sealed = write_index(env, segment, segment.index, last, ids)


def _seal_ids(env: Env, segment: Segment, last: LastBatch) -> IdSummary:
    """Write the id file if the disk can read all ids; else a start within their windows makes it."""
    assert segment.index is not None
    found = collect_ids(segment)
    if not found.unread:
        return write_ids(env, segment, found.entries, last)
    limited.error("file=%s: its id file is not written: the disk cannot read the whole segment", segment.path)
    return IdSummary(segment.index.checked, min(env.now_ms() // 1000 + LEFT_S_MAX, 0xFFFFFFFF))


def keep_index(env: Env, segment: Segment, scan: RecoveryScan) -> None:
    """Seal a scanned segment. An index that cannot be written, or is not whole, serves from memory.

    It is made again by the next that needs it. The segment is synced in any case, since the store is told of it.
    """
    assert segment.index is not None
    _sync(env, segment)
    try:
        if not scan.is_unread and not segment.is_header_unread:
            _write_files(env, segment, scan.last)
            return
        limited.error("file=%s: its index file is not written: the disk cannot read the whole segment", segment.path)
    except OSError as error:
        limited.error("file=%s: its index file is not written: %s", segment.path, error)
    segment.sealed, segment.is_partial = index_in_memory(segment, segment.index), scan.is_unread


def ensure_index(
    env: Env, batches: BatchReader, segment: Segment, *, accept_unread: bool = True,
    on_whole: Callable[[Segment], None] | None = None, again: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Give an opened, full segment its index: from the file beside it, else by a scan, which rewrites the file.

    Blocks.

    Args:
        on_whole: called before the file is written, when a scan has read the whole segment.
        accept_unread: go without what the disk cannot read, with an index in memory: a file would say for good that it
            is lost. Else OSError is raised.
        again: see WindowScan.
    """
    try:
        segment.sealed = load_index(env, segment)
    except CorruptionError as error:
        limited.warning("file=%s: scanned, because %s", segment.path, error)
        scan = scan_segment(batches, segment, is_tail=False, again=again)
        if scan.is_unread and not accept_unread:
            raise OSError(
                errno.EIO, "neither the index file nor all of the segment can be read", segment.path
            ) from error
        if on_whole is not None and not scan.is_unread:
            assert segment.index is not None
            segment.sealed = index_in_memory(segment, segment.index)
            on_whole(segment)
        keep_index(env, segment, scan)
        segment.index = None


def write_directory(view: View, segment: Segment) -> None:
    """Tell the store which queues have records in the sealed segment, and how far they go."""
    sealed = segment.sealed
    assert sealed is not None
    for start in range(0, sealed.directory_count, CHUNK):
        view.store.write(
            [
                (queue_key(topic_id, queue, first_offset), queue_value(segment.base, next_offset))
                for topic_id, queue, first_offset, next_offset in sealed.queues(start, CHUNK)
            ]
        )


def correct_directory(view: View, segment: Segment, unread: int = 0) -> None:
    """As write_directory, for a segment of which the store may have been told while only a part of it could be read.

    Durable on return: its index file, which is written next, says that the store has it. Costs two look-ups per queue.
    A queue that has begun again at that offset in a later segment stays there.

    Args:
        unread: most records in the bytes that could not be read now. The store is told of them first: a later start
            has to know that what it has of the segment may be a part.
    """
    if unread:
        view.put_unread(segment.base, unread)
    sealed = segment.sealed
    assert sealed is not None
    for start in range(0, sealed.directory_count, CHUNK):
        queues = sealed.queues(start, CHUNK)
        view.store.write(
            [
                (queue_key(topic_id, queue, first_offset), queue_value(segment.base, next_offset))
                for topic_id, queue, first_offset, next_offset in queues
                if not view.begins_later(segment.base, topic_id, queue, first_offset)
            ],
            [key for each in queues for key in view.keys_within(segment.base, *each)],
        )
    if not unread:
        view.forget_unread([segment.base])
    view.store.flush()


def write_checkpoint(view: View, frozen: dict[bytes, bytes | None], checkpoint: Checkpoint) -> None:
    """Move a frozen layer into the store, then the checkpoint, then flush.

    The log must be durable up to the checkpoint's position. A crash in between leaves the old checkpoint with some
    newer keys, which its replay writes again.
    """
    for changes in _chunks(frozen):
        view.store.write(
            [(key, value) for key, value in changes if value is not None],
            [key for key, value in changes if value is None],
        )
    view.store.write([(CHECKPOINT_KEY, checkpoint.pack())])
    view.store.flush()
    view.replay_base = checkpoint.segment_base
    view.drop(frozen)


def _chunks(changes: dict[bytes, bytes | None]) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """Chunks, each sorted by itself: sorting all of them would hold the GIL for a tenth of a second."""
    items = iter(changes.items())
    while chunk := list(islice(items, CHUNK)):
        yield sorted(chunk)


class Sealer:
    """Runs the jobs that bring segments and the view to the disk, in order, in a thread.

    A full disk stops it at the job that met it; the next `submit`, `retry` or `finish` retries that job. Until then
    the indexes stay in memory, and recovery would scan their segments.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self._jobs: deque[Callable[[], None]] = deque()
        self._stopped = False
        self.error = ""
        """Why the first job could not run when it was tried last; empty when none has failed since."""

    @property
    def is_idle(self) -> bool:
        """Whether no job waits or runs."""
        return not self._jobs

    @property
    def backlog(self) -> int:
        """Number of jobs that wait or run."""
        return len(self._jobs)

    def submit(self, job: Callable[[], None]) -> None:
        """Queue the job and return."""
        self._jobs.append(job)
        self._background.submit(self._run)

    def retry(self) -> None:
        """Go on after a full disk or another error, if there was one."""
        if self._stopped:
            self._stopped = False
            self._background.submit(self._run)

    def finish(self) -> str:
        """Block until all jobs have run or one could not. Returns why; empty when all have."""
        self._background.submit(self._run)
        self._background.drain()
        return self.error

    def _run(self) -> None:
        while self._jobs:
            try:
                self._jobs[0]()
            except OSError as error:
                limited.error("sealing stopped, %d jobs wait and are retried: %s", len(self._jobs), error)
                self.error, self._stopped = str(error), True
                return
            self._jobs.popleft()
            self.error = ""

"""What happens to a segment once it is full, off the loop.

Sync, index file, and the view brought up to date behind it.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from engine.env.background import Background
from engine.env.base import Env
from engine.log.segment.id_file import NO_IDS, collect_ids, write_ids
from engine.log.segment.index_file import write_index
from engine.log.segment.segment import Segment
from engine.log.view import CHECKPOINT_KEY, Checkpoint, View, queue_key, queue_value

logger = logging.getLogger(__name__)

CHUNK = 256
"""Keys a write to the store.

Building them holds the interpreter's lock, so more would delay the loop by as many microseconds.
"""


def seal(env: Env, segment: Segment, last_at: int) -> None:
    """Sync the segment, write its index file, and before that the one of its checked ids, if it has any. Blocks for its size; a failed
    sync ends the process.
    """
    try:
        segment.file.sync()
    except OSError as error:
        env.die(f"{segment.path}: fdatasync failed: {error}")
    assert segment.index is not None
    ids = write_ids(env, segment, collect_ids(segment), last_at) if segment.index.checked else NO_IDS
    segment.sealed = write_index(env, segment, segment.index, last_at, ids)


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


def write_checkpoint(view: View, frozen: dict[bytes, bytes | None], checkpoint: Checkpoint) -> None:
    """Move a frozen layer into the store, then the checkpoint, then flush. The log must be durable up to the
    checkpoint's position.

    A crash in between leaves the old checkpoint with some newer keys, which its replay writes again.
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
    """Each sorted by itself: sorting all of them would hold the interpreter's lock for a tenth of a second."""
    items = iter(changes.items())
    while chunk := list(islice(items, CHUNK)):
        yield sorted(chunk)


class Sealer:
    """Jobs that bring segments and the view to the disk, in order, in a thread. Each may be tried again.

    A full disk stops it at the job that met it; the next `submit` or `finish` tries that one again. Until then the
    indexes stay in memory and recovery would scan their segments.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self._jobs: deque[Callable[[], None]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no job waits or runs."""
        return not self._jobs

    def submit(self, job: Callable[[], None]) -> None:
        """Queue the job and return."""
        self._jobs.append(job)
        self._background.submit(self._run)

    def finish(self) -> bool:
        """Block until all jobs have run or one could not; whether all have."""
        self._background.submit(self._run)
        self._background.drain()
        return not self._jobs

    def _run(self) -> None:
        while self._jobs:
            try:
                self._jobs[0]()
            except OSError as error:
                logger.error("not sealed, %d jobs wait: %s", len(self._jobs), error)
                return
            self._jobs.popleft()

"""Removal of a deleted segment's files, and of its keys in the view."""

import logging
from contextlib import suppress

from common.limited_log import LimitedLog
from engine.env.base import Env
from engine.log.segment.segment import Segment
from engine.log.segment.side_files import SIDE_SUFFIXES, SUFFIX, SideFiles, side_files
from engine.log.view import View
from engine.log.write.sealer import CHUNK

limited = LimitedLog(logging.getLogger(__name__))


class SegmentRemoval:
    """Works in a thread. A crash in between leaves files that the next start removes, or keys that readers skip."""

    def __init__(self, env: Env, directory: str, view: View, side: SideFiles, bases: list[int]) -> None:
        self._env, self._directory, self._view, self._side = env, directory, view, side
        self._background = env.background()
        self._remove_orphans()
        self._background.submit(lambda: self._side.weigh_all(directory, bases))

    def submit(self, segment: Segment) -> None:
        """Remove the segment, which readers do not use any more."""
        self._background.submit(lambda: self._unlink(segment))

    def close(self) -> None:
        """Finish the removal that has begun. Blocks."""
        self._background.stop()

    def _unlink(self, segment: Segment) -> None:
        """Remove the files and keys. The index stays mapped for as long as its directory is needed."""
        try:
            self._env.unlink(segment.path)
            for path in side_files(segment.path):
                self._env.unlink(path)
                self._side.weigh(path)
            self._env.sync_directory(self._directory)
            self._forget_queues(segment)
        except OSError as error:
            limited.error("file=%s: not removed completely; the next start retries: %s", segment.path, error)

    def _forget_queues(self, segment: Segment) -> None:
        sealed = segment.sealed
        assert sealed is not None
        for start in range(0, sealed.directory_count, CHUNK):
            gone = [
                key
                for topic_id, queue, first_offset, _ in sealed.queues(start, CHUNK)
                for key in self._view.keys_up_to(topic_id, queue, first_offset)
            ]
            if gone:
                self._view.store.write([], gone)

    def _remove_orphans(self) -> None:
        """Side files whose segment is gone: a crash came between the two removals."""
        names = self._env.list(self._directory)
        for name in names:
            if name.endswith(SIDE_SUFFIXES) and name.rpartition(".")[0] + SUFFIX not in names:
                with suppress(OSError):
                    self._env.unlink(f"{self._directory}/{name}")

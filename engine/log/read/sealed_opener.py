"""Opening sealed segments that are needed again, also while the disk reads neither their index nor all of their bytes."""

import errno
from functools import partial

from engine.env.base import Env
from engine.log.format import SegmentHeader, segment_name
from engine.log.read.unreadable import LASTS_MS, RETRY_MS, RETRY_MS_MAX
from engine.log.segment.native import BatchReader
from engine.log.segment.segment import Segment, open_segment
from engine.log.view import View
from engine.log.write.sealer import correct_directory, ensure_index


class SealedOpener:
    """Opens sealed segments with their index.

    A segment without a readable index file is scanned. When the disk cannot read all of it either, the error may pass:
    readers are refused and try again. After a minute the segment serves what can be read.

    Args:
        partly: bases of segments of which the view knows only a part, because the start could not read all.
        waited: bases of segments for which the start has waited that minute.
    """

    def __init__(
        self, env: Env, directory: str, batches: BatchReader, view: View, partly: set[int], waited: set[int]
    ) -> None:
        self._env, self._directory, self._batches = env, directory, batches
        self._view, self._partial, self._waited = view, partly, waited
        self._unread: dict[int, tuple[int, int]] = {}
        """Base -> since when it cannot be read, and when it is tried again."""

    def open(self, base: int, fallback: SegmentHeader) -> Segment:
        """Open it. `fallback` replaces a damaged header. Blocks when it has to be scanned. Raises OSError."""
        now_ms = self._env.clock.monotonic_ms()
        since_ms, due_ms = self._unread.get(base, (now_ms, now_ms))
        if now_ms < due_ms and base not in self._waited:
            raise OSError(
                errno.EIO, "cannot be read, and is tried again soon", f"{self._directory}/{segment_name(base)}"
            )
        segment = open_segment(self._env, self._directory, base, fallback)
        try:
            ensure_index(
                self._env, self._batches, segment,
                accept_unread=base in self._waited or now_ms - since_ms >= LASTS_MS,
                on_whole=partial(correct_directory, self._view) if base in self._partial else None,
            )  # fmt: skip
        except OSError:
            segment.close()
            self._unread[base] = since_ms, now_ms + min(max(now_ms - since_ms, RETRY_MS), RETRY_MS_MAX)
            raise
        return segment

"""Look-up by id and by key, as the layers above the log call it."""

import logging
from collections.abc import Callable

from common.limited_log import LimitedLog
from engine.config import LogConfig
from engine.env.base import Env
from engine.log.disk import DiskLevel, DiskWatch
from engine.log.lookup_index.lookup_file import FAMILIES
from engine.log.lookup_index.maker import LookupFileMaker
from engine.log.lookup_index.search import LookupCursor, LookupQuery, LookupSearch, SearchRange
from engine.log.segment.segments import LogSegments
from engine.log.write.native import Appender

limited = LimitedLog(logging.getLogger(__name__))


class LookUp:
    """Starts searches.

    Belongs to the loop's thread; searches run in a thread of their own, one slice after the other.
    """

    maker: LookupFileMaker
    """Makes the lookup files, as long as a thread calls its `steps()`."""

    def __init__(
        self, env: Env, directory: str, config: LogConfig, log_id: bytes,
        segments: LogSegments, appender: Appender, disk: DiskWatch,
    ) -> None:  # fmt: skip
        self._env, self._directory, self._log_id = env, directory, log_id
        self._segments, self._appender = segments, appender
        self.families = config.look_up
        self.maker = LookupFileMaker(
            env, directory, log_id, lambda: segments.sealed.bases, [FAMILIES[name] for name in config.look_up],
            config.look_up_bytes_a_second, has_room=lambda: disk.level < DiskLevel.DELETE, open_segment=self._open_segment,
            side=segments.sealed.side, clock=lambda: env.clock.monotonic_ns() / 1e9,
        )  # fmt: skip
        self._background = env.background()
        self._closed = False

    def search(self, wanted: LookupQuery, cursor: LookupCursor) -> LookupSearch:
        """A search over the log as it is now, to run once: by `start`, or by the caller where it may block."""
        return LookupSearch(self._env, self._directory, self._log_id, self.maker, self._places(), wanted, cursor)

    def start(self, search: LookupSearch, done: Callable[[], None]) -> None:
        """Run a slice in the thread, then call `done()` there; it has to be safe there."""

        def work() -> None:
            try:
                if not self._closed:
                    search.run()
            except Exception:
                limited.exception("look-up failed")
                search.error = "internal error: the engine's log has the details"
            done()

        self._background.submit(work)

    def close(self) -> None:
        """Wait for the slice that runs; slices that wait are not begun.

        Call after the thread of `maker.steps()` has ended.
        """
        self._closed = True
        self._background.stop()
        self.maker.close()

    def _open_segment(self) -> tuple[int, int] | None:
        """(base, address after the last whole batch) of the active segment; in the maker's thread."""
        active = self._segments.active
        end_at = self._appender.end_position - active.base
        # While the log rolls, the end is already the next segment's.
        return (active.base, end_at) if end_at <= active.header.size else None

    def _places(self) -> list[SearchRange]:
        active = self._segments.active
        places = {base: SearchRange(base, None) for base in tuple(self._segments.sealed.bases)}
        for segment in tuple(self._segments.sealing):
            places.setdefault(segment.base, SearchRange(segment.base, segment.end_at))
        places[active.base] = SearchRange(active.base, self._appender.end_position - active.base)
        return sorted(places.values())

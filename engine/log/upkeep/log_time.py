"""The time by which a log's messages grow old: the believed time, kept over restarts.

A start knows the newest record's time. A wall clock that is further ahead than a usual restart takes may be wrong, or
the engine was idle or stopped for so long: it counts after the clock has shown it for as long. The record of KEY keeps
a step that was met while the engine ran, because later records are stamped with the wrong time.
"""

import logging
import struct
from contextlib import suppress

from common.believed_time import DRIFT_MS, BelievedTime
from engine.env.base import Env
from engine.errors import DiskFullError
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE
from engine.log.segment.segments import LogSegments
from engine.log.upkeep.expiry import newest_ms
from engine.log.write.progress import ProgressRecords

logger = logging.getLogger(__name__)

KEY = b"\0clock"
RESTART_MS = 3_600_000
"""Time between the newest record and a start that counts at once."""

SAVE_MS = 600_000
"""Interval at which the time that a step was waited for is kept."""

_VALUE = struct.Struct("<BQQ")
_VERSION = 1


class LogTime:
    """Keeps the believed time of one log. Call `check()` once per second.

    Args:
        last_at: byte address of the active segment's last batch, 0 when it has none.

    Attributes:
        time: the believed time.
    """

    def __init__(self, env: Env, segments: LogSegments, records: ProgressRecords, last_at: int) -> None:
        self._records = records
        value = next((value for key, value in records.progress(KEY) if key == KEY), b"")
        is_sound = len(value) == _VALUE.size and value[0] == _VERSION
        _, kept_ahead_ms, waited_ms = _VALUE.unpack(value) if is_sound else (_VERSION, 0, 0)
        clock, newest = env.clock, newest_stored_ms(env, segments, last_at)
        wall_ms = clock.wall_ms()
        believed_ms = newest - kept_ahead_ms + min(max(wall_ms - newest, 0), RESTART_MS)
        self.time = BelievedTime(
            clock.wall_ms, clock.monotonic_ms, believed_ms=min(wall_ms, believed_ms), name="retention",
            waited_ms=waited_ms if abs(wall_ms - believed_ms - kept_ahead_ms) <= DRIFT_MS else 0,
        )  # fmt: skip
        self._kept = value
        if self.time.ahead_ms:
            logger.info("retention: %s (newest record: %d ms since 1970)", self.time.sentence, newest)

    def check(self) -> None:
        """Compare the clocks, and keep a step that does not count yet."""
        has_changed = self.time.check()
        is_late = self.time.waited_ms - self._kept_waited_ms() >= SAVE_MS
        if has_changed or is_late or bool(self._kept) != bool(self.time.ahead_ms):
            self._save()

    def accept(self) -> None:
        """Let the wall clock count as it is: an operator says that it is right."""
        self.time.accept()
        self._save()

    def _save(self) -> None:
        time = self.time
        value = _VALUE.pack(_VERSION, time.ahead_ms, time.waited_ms) if time.ahead_ms else b""
        with suppress(DiskFullError):  # the next check tries again
            if value != self._kept:
                self._records.put_progress([(KEY, value)])
                self._kept = value

    def _kept_waited_ms(self) -> int:
        return _VALUE.unpack(self._kept)[2] if len(self._kept) == _VALUE.size else 0


def newest_stored_ms(env: Env, segments: LogSegments, last_at: int) -> int:
    """Time at which the log's last batch was stored; the active segment's creation when there is none."""
    active = segments.active
    if last_at:
        return max(active.header.created_ms, BATCH_HEADER.unpack(active.file.read_at(BATCH_HEADER_SIZE, last_at))[11])
    last = max(segments.sealed.bases, default=None)
    segment = None if last is None else segments.sealed.get(last)
    return active.header.created_ms if segment is None else max(active.header.created_ms, newest_ms(env, segment))

"""The time by which a log's messages grow old: the believed time, kept over restarts.

A start knows the newest record's time. A wall clock that is further ahead than a usual restart takes may be wrong, or
the engine was idle or stopped for so long: it counts after the clock has shown it for as long. The record of KEY keeps
a step that was met while the engine ran, because later records are stamped with the wrong time.
"""

import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from common.believed_time import DRIFT_MS, BelievedTime
from common.limited_log import LimitedLog
from engine.env.native import NodeClock
from engine.errors import DiskFullError
from engine.log.view import View
from engine.log.write.progress import ProgressRecords

logger = logging.getLogger(__name__)
limited = LimitedLog(logger)

KEY = b"\0clock"
RESTART_MS = 60_000
"""Time between the newest record and a start that counts at once: far below the shortest retention, an hour, because what
is hidden by a wrong clock is skipped by groups for ever."""

SAVE_MS = 600_000
"""Interval at which the time that a step was waited for is kept."""

_VALUE = struct.Struct("<BQQ")
_VERSION = 1


def believed_at_start(clock: NodeClock, view: View, newest_ms: int) -> BelievedTime:
    """The believed time with which a start goes on.

    Args:
        view: has the record of KEY, if the log does.
        newest_ms: the time that the log's last batch is stamped with.
    """
    value = view.get(b"p" + KEY) or b""
    is_sound = len(value) == _VALUE.size and value[0] == _VERSION
    _, kept_ahead_ms, waited_ms = _VALUE.unpack(value) if is_sound else (_VERSION, 0, 0)
    wall_ms = clock.wall_ms()
    believed_ms = newest_ms - kept_ahead_ms + min(max(wall_ms - newest_ms, 0), RESTART_MS)
    time = BelievedTime(
        clock.wall_ms, clock.monotonic_ms, believed_ms=min(wall_ms, believed_ms), name="retention",
        waited_ms=waited_ms if abs(wall_ms - believed_ms - kept_ahead_ms) <= DRIFT_MS else 0,
    )  # fmt: skip
    if time.ahead_ms:
        logger.info("retention: %s (newest record: %d ms since 1970)", time.sentence, newest_ms)
    return time


class StoredTimes(Protocol):
    """The appender.

    Attributes:
        stored_ms_min: batches are stamped with this time while the clock is behind it.
    """

    stored_ms_min: int


class LogTime:
    """Keeps the believed time of one log, and its batches' times from going back. Call `check()` once per second.

    A message that is stamped with an hour too early would be hidden an hour too early, and those before it, once the
    clock is right again. A time that was not believed is no bound, so a step back from it counts at once.

    Args:
        newest_ms: the time that the log's last batch is stamped with.

    Attributes:
        time: the believed time.
    """

    def __init__(
        self, records: ProgressRecords, time: BelievedTime, wall_ms: Callable[[], int], appender: StoredTimes,
        newest_ms: int,
    ) -> None:  # fmt: skip
        self._records, self.time, self._wall_ms, self._appender = records, time, wall_ms, appender
        self._kept = next((value for key, value in records.progress(KEY) if key == KEY), b"")
        appender.stored_ms_min = newest_ms - (_VALUE.unpack(self._kept)[1] if len(self._kept) == _VALUE.size else 0)

    @property
    def newest_ms(self) -> int:
        """No batch is stamped with an earlier time from now on."""
        return self._appender.stored_ms_min

    def follow(self, newest_ms: int, *, is_stamped: bool) -> None:
        """Go on after the last batch, which another node has stamped: no batch has a time below that one's.

        The start of this node, perhaps with an empty copy of an old log, has believed what the log had then.

        Args:
            is_stamped: the other node has stamped batches since this one last led. What this one had stamped then is no
                bound: an operator may have accepted an earlier time there.
        """
        self._appender.stored_ms_min = newest_ms if is_stamped else max(self._appender.stored_ms_min, newest_ms)
        self._kept = next((value for key, value in self._records.progress(KEY) if key == KEY), b"")
        self.time.reach(newest_ms - (_VALUE.unpack(self._kept)[1] if len(self._kept) == _VALUE.size else 0))

    def check(self) -> None:
        """Compare the clocks, and keep a step that does not count yet."""
        has_changed = self.time.check()
        wall_ms, kept_ms = self._wall_ms(), self._appender.stored_ms_min
        if not self.time.ahead_ms:
            self._appender.stored_ms_min = max(
                self.time.now_ms(), kept_ms
            )  # a step since the last comparison may not count
        if kept_ms - wall_ms > DRIFT_MS:
            limited.warning(
                "the wall clock is %.0f s behind the newest message: until it gets there, messages are stored under the "
                "time of that one; `penstock retention accept-clock` ends that", (kept_ms - wall_ms) / 1000,
            )  # fmt: skip
        is_late = self.time.waited_ms - self._kept_waited_ms() >= SAVE_MS
        if has_changed or is_late or bool(self._kept) != bool(self.time.ahead_ms):
            self._save()

    def accept(self) -> None:
        """Let the wall clock count as it is: an operator says that it is right."""
        self.time.accept()
        self._appender.stored_ms_min = self._wall_ms()
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

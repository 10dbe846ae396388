"""Reads one timer's record from its segment."""

import errno

from engine.link.timer import Timer, parse
from engine.log.timer_log import TimerLog

EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors of the whole process, which pass soon. Others are of one segment, or of a sector of it."""

GUESS_BYTES = 1024
"""First read of a record whose size is not known yet."""


def read_timer(log: TimerLog, base: int, at: int) -> Timer | None:
    """Return the timer at byte `at` of the segment at `base`; None when it fails verification. Raises OSError."""
    data = log.read_at(base, at, GUESS_BYTES)
    size = 4 + int.from_bytes(data[:4], "little")
    if size > len(data) == GUESS_BYTES:
        data = log.read_at(base, at, size)
    return parse(data)

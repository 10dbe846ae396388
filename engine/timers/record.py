"""Reading one timer's record from its segment."""

from engine.link.timer import Timer, parse
from engine.log.timer_log import TimerLog

GUESS_BYTES = 1024
"""Read at first of a record whose size is not known yet."""


def read_timer(log: TimerLog, base: int, at: int) -> Timer | None:
    """The timer at that address of the segment at `base`, or None when its bytes do not verify. Raises OSError."""
    data = log.read_at(base, at, GUESS_BYTES)
    size = 4 + int.from_bytes(data[:4], "little")
    if size > len(data) == GUESS_BYTES:
        data = log.read_at(base, at, size)
    return parse(data)

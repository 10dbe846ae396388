"""Loops: a message that is delivered again and again.

Each round's due time is the one before it plus the gap, whenever it really fired, so rounds do not drift; rounds that were missed while
the engine was down follow one another at once. A gap that grows stops growing at a day, as in DiDi's DDMQ.
"""

from engine.link.timer import Timer

GROWN_GAP_MS_MAX = 86_400_000


def following(timer: Timer, position: int) -> Timer | None:
    """The next round of the timer at `position`, or None behind the last one."""
    if not timer.gap_ms or not timer.times:
        return None
    due_ms = timer.due_ms + timer.gap_ms
    if timer.until_ms and due_ms > timer.until_ms:
        return None
    gap_ms = timer.gap_ms if timer.growth == 1 else min(timer.gap_ms * timer.growth, GROWN_GAP_MS_MAX)
    return timer._replace(due_ms=due_ms, gap_ms=gap_ms, times=timer.times - 1, previous=position)

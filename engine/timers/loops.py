"""Loops: messages that are delivered repeatedly.

A round is due one gap after the due time of the round before, regardless of its real firing time, so rounds do not
drift. Rounds that were missed while the engine was down follow one another at once. A growing gap stops at one day, as
in DiDi's DDMQ.
"""

from engine.link.timer import Timer

GROWN_GAP_MS_MAX = 86_400_000


def following(timer: Timer, position: int) -> Timer | None:
    """Return the next round of the timer at `position`; None after the last one."""
    if not timer.gap_ms or not timer.times:
        return None
    due_ms = timer.due_ms + timer.gap_ms
    if timer.until_ms and due_ms > timer.until_ms:
        return None
    is_fixed = timer.growth == 1 or timer.gap_ms >= GROWN_GAP_MS_MAX  # one that begins above a day stays as asked
    gap_ms = timer.gap_ms if is_fixed else min(timer.gap_ms * timer.growth, GROWN_GAP_MS_MAX)
    return timer._replace(due_ms=due_ms, gap_ms=gap_ms, times=timer.times - 1, previous=position)

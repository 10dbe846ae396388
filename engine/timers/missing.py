"""Timers that the last start could not read: looks whether the disk reads them again, so that a new start takes them in.

A running engine does not take them in itself: some may have fired, and a start alone compares all records of an id.
"""

from engine.errors import TimersReturnedError
from engine.timers.timer_store import TimerStore

LOOK_MS, LOOK_MS_MAX = 60_000, 3_600_000
"""Pause before the first look, doubled after each: on a bad sector a look may block the loop for seconds."""


class MissingTimers:
    """Looks at the segments in `store.damaged`; they have to be readable all together, as a start waits for each.

    So the timers wait until somebody starts the engine while a segment stays damaged, or when the start had to make the
    index of one from a part, which a look does not read again.
    """

    def __init__(self, store: TimerStore) -> None:
        self._store = store
        self._pause_ms = LOOK_MS
        self._due_ms = store.log.monotonic_ms() + LOOK_MS

    def next_ms(self) -> int | None:
        """Milliseconds until the next look; None: nothing is missing."""
        return max(0, self._due_ms - self._store.log.monotonic_ms()) if self._store.damaged else None

    def look(self) -> None:
        """Look if it is time. Blocks to read the timers of the segments. Raises TimersReturnedError: start again."""
        if self.next_ms() != 0:
            return
        if all(map(self._can_read, self._store.damaged)):
            raise TimersReturnedError("the disk can read those again that the last start could not read")
        self._pause_ms = min(2 * self._pause_ms, LOOK_MS_MAX)
        self._due_ms = self._store.log.monotonic_ms() + self._pause_ms

    def _can_read(self, base: int) -> bool:
        try:
            return self._store.can_read(base)
        except OSError:
            return False

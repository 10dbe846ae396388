"""Reads far behind the end of the log: fetched ahead by a thread, within a budget, through a bounded part of the page cache.

The loop never waits for the disk on their behalf. What is in memory anyway is read as it is. Other bytes are fetched a window at a time;
until it is there the reader gets nothing and its queue is woken afterwards, as if records had arrived. Windows that were used longest ago
are dropped from the page cache, so that a sleeper who drains a day's messages does not push out those that everybody else wants.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

from engine.config import LogConfig
from engine.env import Env
from engine.log.format import segment_name
from engine.log.segment import Segment

WINDOW = 1 << 20
OVERLAP = 65_536
"""Fetched behind a window: a batch that begins in it ends there, unless it is a large one."""

IN_MEMORY_MS = 1000
"""For how long a window that was found in memory is taken to be there: looking costs the loop 0.1 ms."""

FOUND_MAX = 16_384

LATE_MS_MAX = 20
"""How far fetches may be ahead of the budget before the thread pauses."""

NO_LIMIT = 0xFFFFFFFFFFFFFFFF

Window = tuple[int, int]
"""Base of the segment, number in it."""


class ColdReads:
    """All methods belong to the loop's thread but those that say otherwise."""

    def __init__(self, env: Env, directory: str, config: LogConfig) -> None:
        self._env, self._directory, self._config = env, directory, config
        self._background = env.background()
        self._windows: OrderedDict[Window, bool] = OrderedDict()
        self._found: dict[Window, int] = {}
        self._windows_max = config.cold_cache_bytes // WINDOW
        self._ahead = self._windows_max // 4
        self._waiting: dict[Window, set[tuple[int, int]]] = {}
        self._arrived: deque[Window] = deque()
        self._woken: list[tuple[int, int]] = []
        self._due_ms = 0.0
        self.bytes_fetched = 0
        self.deferred = 0
        self.notify: Callable[[], None] = lambda: None
        """Called in the thread whenever a window has arrived; has to be safe there."""

    def covers(self, segment: Segment, end_position: int) -> bool:
        """Whether the segment lies so far behind the end that it is read as cold."""
        distance = self._config.cold_distance_bytes
        return segment.sealed is not None and 0 < distance < end_position - segment.next_base

    def limit(self, segment: Segment, topic_id: int, queue: int, offset: int) -> int:
        """The byte address up to which the segment may be read for this queue now; 0 when it has to wait and will be woken."""
        self._settle()
        assert segment.sealed is not None
        at = segment.sealed.locate(topic_id, queue, offset)
        if at is None:
            return NO_LIMIT
        number = at // WINDOW
        if self._is_in_memory(segment, number):
            return (number + 1) * WINDOW
        if not self._windows.get((segment.base, number)):
            self._want(segment, number)
            self._waiting.setdefault((segment.base, number), set()).add((topic_id, queue))
            self._settle()
        if not self._windows.get((segment.base, number)):
            self.deferred += 1
            return 0
        self._windows.move_to_end((segment.base, number))
        # A topic's queues lie scattered: of one window each has little, and every read costs the loop the same.
        for ahead in range(number + 1, min(number + self._ahead, (segment.end_at - 1) // WINDOW) + 1):
            self._want(segment, ahead)
        while self._windows.get((segment.base, number + 1)):
            number += 1
        return (number + 1) * WINDOW

    @property
    def has_woken(self) -> bool:
        """Whether take_woken() may give any."""
        return bool(self._arrived or self._woken)

    def take_woken(self) -> list[tuple[int, int]]:
        """The queues that were told to wait and can be read now."""
        if self._arrived:
            self._settle()
        woken, self._woken = self._woken, []
        return woken

    def waits(self, topic_id: int, queue: int) -> bool:
        """Whether a read of this queue was told to wait and nobody has been woken for it yet."""
        return any((topic_id, queue) in queues for queues in self._waiting.values())

    def close(self) -> None:
        """Blocks until the thread has done what it was asked."""
        self.notify = lambda: None
        self._background.stop()

    def _is_in_memory(self, segment: Segment, number: int) -> bool:
        window, now_ms = (segment.base, number), self._env.now_ms()
        if 0 <= now_ms - self._found.get(window, now_ms + 1) < IN_MEMORY_MS:
            return True
        if window in self._windows or not segment.file.in_memory(WINDOW + OVERLAP, number * WINDOW):
            return False
        if len(self._found) == FOUND_MAX:
            self._found.clear()
        self._found[window] = now_ms
        return True

    def _want(self, segment: Segment, number: int) -> None:
        window = (segment.base, number)
        if window in self._windows:
            return
        self._windows[window] = False
        self._background.submit(partial(self._fetch, segment.path, window))
        self._evict()

    def _settle(self) -> None:
        """Take note of what the thread has brought."""
        while self._arrived:
            window = self._arrived.popleft()
            if window in self._windows:
                self._windows[window] = True
            self._woken += self._waiting.pop(window, ())

    def _evict(self) -> None:
        for window in list(self._windows)[: max(0, len(self._windows) - self._windows_max)]:
            # One that is still on its way goes later: somebody waits for it.
            if self._windows[window]:
                del self._windows[window]
                self._background.submit(partial(self._forget, f"{self._directory}/{segment_name(window[0])}", window))

    # In the thread, with files of their own: readers' descriptors may be closed at any time

    def _fetch(self, path: str, window: Window) -> None:
        self._keep_to_budget()
        try:
            file = self._env.open(path)
            try:
                # One call: between two the thread would wait for the interpreter's lock.
                self.bytes_fetched += len(file.read_at(WINDOW + OVERLAP, window[1] * WINDOW))
            finally:
                file.close()
        except OSError:
            pass  # deleted meanwhile, or unreadable: who reads it learns that
        self._arrived.append(window)
        self.notify()

    def _keep_to_budget(self) -> None:
        now_ms = self._env.now_ms()
        self._due_ms = max(self._due_ms, now_ms) + WINDOW * 1000 / self._config.cold_bytes_a_second
        # A clock that steps must not stop readers for longer than one window takes many times over.
        late_ms = min(self._due_ms - now_ms, 1000.0)
        if late_ms > LATE_MS_MAX:
            self._env.pause(int(late_ms))

    def _forget(self, path: str, window: Window) -> None:
        try:
            file = self._env.open(path)
        except OSError:
            return
        file.forget(window[1] * WINDOW, WINDOW)
        file.close()

"""Cold reads, far behind the end of the log: fetched ahead by a thread, within a budget and a part of the page cache.

The loop never waits for the disk for them. Bytes that are in memory are read as they are. Other bytes are fetched one
window at a time: until it is there the read returns nothing, and its queue is woken afterwards as if records had
arrived. The windows that were used longest ago are dropped from the page cache, so that a consumer that catches up on a
day's messages does not evict what the others read.

With a lender, the bytes of segments that lie further back come from another broker, into memory (borrowed.py).
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

from engine.config import LogConfig
from engine.env.base import Env, File
from engine.log.format import segment_name
from engine.log.read.borrowed import CROWDED_MS, UNSOUND_MS, WINDOW, BorrowedSegment, BorrowedWindows, Lender
from engine.log.segment.segment import Segment
from engine.log.write.native import Appender

AHEAD = 4
"""Windows fetched after the one that is wanted, at most a quarter of the cache: it also holds other readers'
windows."""

IN_MEMORY_MS = 1000
"""Time for which a window that was found in memory counts as being there: checking costs the loop some 30 µs."""

FOUND_MAX = 16_384

LATE_MS_MAX = 2
"""Amount by which reads may exceed the budget before they pause."""

CREDIT_MS = 10
"""Unused budget that is kept: on a busy machine pauses last some ms longer than requested."""

REST_MS_MAX = 1000

ALONE_MS = 1000
"""Time without appends after which the budget no longer applies: there are no writers to protect."""

GRANT_BYTES = 65_536
"""Assumed size of the first read; later ones are assumed to be as large as those before."""

READ_BYTES_MIN = 4096
"""Least assumed size of a read."""

TURN_BYTES = 131_072
"""Bytes read between two polls of the sockets: `take_woken` returns as many queues as have about this much."""

NO_LIMIT = 0xFFFFFFFFFFFFFFFF

Window = tuple[int, int]
"""Base of the segment, number in it."""

REST: Window = (-1, 0)
"""Stands for the pause that readers wait for when the budget is used up."""


class ColdReads:
    """Decides which cold bytes may be read now. Methods belong to the loop's thread, except where noted.

    Args:
        notify: called in the thread whenever a window has arrived; has to be safe there.
    Attributes:
        bytes_fetched: from the own disk.
    """

    def __init__(self, env: Env, directory: str, config: LogConfig, notify: Callable[[], None] | None = None) -> None:
        self._env, self._directory, self._config = env, directory, config
        self._background = env.background()
        self._windows: OrderedDict[Window, bool] = OrderedDict()
        self._found: dict[Window, int] = {}
        self._windows_max = config.cold_cache_bytes // WINDOW
        self._ahead = max(1, min(AHEAD, self._windows_max // 4))
        self._borrowed = BorrowedWindows(env, self._windows_max)
        self._end_position = 0
        self._waiting: dict[Window, dict[tuple[int, int], None]] = {}
        # In order: a queue that was woken and found the budget used up comes before the others the next time.
        self._arrived: deque[Window] = deque()
        self._woken: list[tuple[int, int]] = []
        self._due_ms = 0.0
        self._granted: dict[tuple[int, int], float] = {}
        self._read_bytes = float(GRANT_BYTES)
        self._client_batches, self._appended_ms = 0, 0
        self.bytes_fetched = 0
        self.deferred = 0
        self.notify: Callable[[], None] = notify or (lambda: None)

    @property
    def bytes_borrowed(self) -> int:
        """From the lender, so far."""
        return self._borrowed.bytes_borrowed

    def borrow_from(self, lender: Lender) -> None:
        """Have the bytes of segments that are far enough from the end lent by other brokers from now on."""
        self._borrowed.lender = lender

    def covers(self, segment: Segment, appender: Appender) -> bool:
        """Whether the segment is so far from the end of the log that it is read as cold, or from borrowed bytes."""
        distance = self._config.cold_distance_bytes
        if segment.sealed is None or not distance:
            return False
        if distance >= appender.end_position - segment.next_base and not self._borrowed.is_far(
            segment, appender.end_position
        ):
            return False
        self._end_position = appender.end_position
        if self._client_batches != appender.client_batches:
            self._client_batches, self._appended_ms = appender.client_batches, self._env.now_ms()
        return True

    def limit(
        self, segment: Segment, topic_id: int, queue: int, offset: int, batch_bytes: int = 0
    ) -> tuple[int, File]:  # fmt: skip
        """(byte address up to which the segment may be read for this queue now, the file to read it from).

        The address is 0 when the queue waits and will be woken. The file is good for this turn only. One that is not
        the segment's own ends a window after the address, and what does not verify there tells nothing about the
        segment: see distrust(). Comes after covers().

        Args:
            batch_bytes: size of the batch at the offset, if it was found to end behind the file's bytes.
        """
        self._settle()
        assert segment.sealed is not None
        at = segment.sealed.locate(topic_id, queue, offset)
        if at is None:
            return NO_LIMIT, segment.file
        if not self._is_granted(topic_id, queue):
            return 0, segment.file
        number, last = at // WINDOW, (segment.end_at - 1) // WINDOW
        if self._is_in_memory(segment, number):
            return (number + 1) * WINDOW, segment.file
        through = min(last, max(number + 1, (at + batch_bytes - 1) // WINDOW))
        if through - number > self._windows_max // 2:
            self.distrust(segment)
            through = number + 1
        # A topic's queues are scattered: each has little of one window, and every read costs the loop the same.
        wanted = range(number, min(max(number + self._ahead, through), last) + 1)
        if self._borrowed.lender is not None and any((segment.base, each) not in self._windows for each in wanted):
            self._choose(segment)
        for each in wanted:
            self._want(segment, each)
        self._settle()
        missing = next(
            (each for each in range(number, through + 1) if not self._windows.get((segment.base, each))), None
        )
        if missing is not None:
            self._waiting.setdefault((segment.base, missing), {})[topic_id, queue] = None
            self.deferred += 1
            return 0, segment.file
        self._windows.move_to_end((segment.base, number))
        while self._is_readable(segment, number + 1, last):
            number += 1
        borrowed = self._borrowed.segments.get(segment.base)
        return (number + 1) * WINDOW, segment.file if borrowed is None else self._borrowed.use(borrowed)

    def distrust(self, segment: Segment) -> None:
        """Borrowed bytes of the segment do not verify, or do not have a whole batch: read it from the own disk."""
        self._give_back(segment.base, UNSOUND_MS)

    def give_back_idle(self) -> None:
        """Free the memory of borrowed windows when nothing has read them for a while."""
        if self._borrowed.is_idle:
            for base in list(self._borrowed.segments):
                if all(is_here for window, is_here in self._windows.items() if window[0] == base):
                    self._give_back(base)

    @property
    def has_woken(self) -> bool:
        """Whether take_woken() may give any."""
        return bool(self._arrived or self._woken)

    def served(self, topic_id: int, queue: int, size: int) -> None:
        """Charge the bytes that were read, from the disk or not: their delivery costs the same."""
        self._charge(size - self._granted.pop((topic_id, queue), 0.0))
        self._read_bytes = max(READ_BYTES_MIN, self._read_bytes + (size - self._read_bytes) / 8)

    def _is_granted(self, topic_id: int, queue: int) -> bool:
        """Whether the budget allows a read.

        It is charged before the fetch, so that others do not use it up meanwhile.
        """
        if (topic_id, queue) in self._granted:
            return True
        if REST not in self._waiting and self._late_ms() <= LATE_MS_MAX:
            self._grant(topic_id, queue)
            return True
        resting = self._waiting.setdefault(REST, {})
        resting[topic_id, queue] = None
        if len(resting) == 1:
            self._background.submit(self._rest)
            self._settle()
        return (topic_id, queue) in self._granted

    def _grant(self, topic_id: int, queue: int) -> None:
        if len(self._granted) == FOUND_MAX:
            self._granted.clear()  # mostly of readers that have gone
        self._granted[topic_id, queue] = self._read_bytes
        self._charge(self._read_bytes)

    def _grant_resting(self) -> None:
        """Grant reads to the queues that have waited longest, as far as the budget allows."""
        resting = self._waiting.get(REST, {})
        while resting and self._late_ms() <= LATE_MS_MAX:
            queue = next(iter(resting))
            del resting[queue]
            self._grant(*queue)
            self._woken.append(queue)
        if resting:
            self._background.submit(self._rest)
        else:
            self._waiting.pop(REST, None)

    def _charge(self, size: float) -> None:
        if self._env.now_ms() - self._appended_ms > ALONE_MS:
            return
        self._due_ms = (
            max(self._due_ms, self._env.now_ms() - CREDIT_MS) + size * 1000 / self._config.cold_bytes_a_second
        )

    def _late_ms(self) -> float:
        now_ms = self._env.now_ms()
        # A clock that steps back delays no read for longer than this.
        self._due_ms = min(self._due_ms, now_ms + REST_MS_MAX)
        return self._due_ms - now_ms

    def _is_readable(self, segment: Segment, number: int, last: int) -> bool:
        is_here = self._windows.get((segment.base, number), False)
        return is_here and (number == last or self._windows.get((segment.base, number + 1), False))

    def take_woken(self) -> list[tuple[int, int]]:
        """Queues that waited and can be read now. `notify()` was called again if there are more."""
        if self._arrived:
            self._settle()
        count = max(1, int(TURN_BYTES / self._read_bytes))
        woken, self._woken = self._woken[:count], self._woken[count:]
        if self._woken:
            self.notify()
        return woken

    def waits(self, topic_id: int, queue: int) -> bool:
        """Whether a read of this queue returned nothing because its records are being fetched."""
        return any((topic_id, queue) in queues for queues in self._waiting.values())

    def close(self) -> None:
        """End the thread after its tasks. Blocks."""
        self.notify = lambda: None
        if self._borrowed.lender is not None:
            self._borrowed.lender.stop()
        self._background.stop()
        self._borrowed.close()

    def _is_in_memory(self, segment: Segment, number: int) -> bool:
        window, now_ms = (segment.base, number), self._env.now_ms()
        if 0 <= now_ms - self._found.get(window, now_ms + 1) < IN_MEMORY_MS:
            return True
        if window in self._windows or not segment.file.in_memory(2 * WINDOW, number * WINDOW):
            return False
        if len(self._found) == FOUND_MAX:
            self._found.clear()
        self._found[window] = now_ms
        return True

    def _want(self, segment: Segment, number: int) -> None:
        window = (segment.base, number)
        if window in self._windows:
            self._windows.move_to_end(window)  # the others that are wanted do not evict it
            return
        self._windows[window] = False
        borrowed = self._borrowed.segments.get(segment.base)
        if borrowed is not None:
            borrowed.windows += 1
            self._borrowed.use(borrowed)
        self._background.submit(partial(self._fetch, segment.path, window, borrowed))
        self._evict()

    def _choose(self, segment: Segment) -> None:
        """Begin or cease to borrow, before a window of the segment is wanted that is not there."""
        base = segment.base
        if base in self._borrowed.segments:
            if self._borrowed.is_crowded(self._windows.values()):
                self._give_back(base, CROWDED_MS)
        elif not any(window[0] == base for window in self._windows):
            self._borrowed.begins(segment, self._end_position)

    def _give_back(self, base: int, own_ms: int = 0) -> None:
        borrowed = self._borrowed.end(base, own_ms)
        if borrowed is not None:
            # Those that are being fetched arrive nevertheless, and wake the queues that wait for them.
            for window in [each for each in self._windows if each[0] == base]:
                del self._windows[window]
            self._background.submit(borrowed.file.close)

    def _settle(self) -> None:
        """Take note of the windows that have arrived."""
        while self._arrived:
            window = self._arrived.popleft()
            if window == REST:
                self._grant_resting()
                continue
            if window in self._windows:
                self._windows[window] = True
            self._woken += self._waiting.pop(window, ())
        if self._borrowed.segments:
            self._evict()  # memory that is borrowed cannot be reclaimed as the page cache can

    def _evict(self) -> None:
        for window in list(self._windows)[: max(0, len(self._windows) - self._windows_max)]:
            # A window that is still being fetched is dropped later: a reader waits for it.
            if self._windows[window]:
                del self._windows[window]
                self._drop(window)

    def _drop(self, window: Window) -> None:
        borrowed = self._borrowed.segments.get(window[0])
        if borrowed is None:
            self._background.submit(partial(self._forget, f"{self._directory}/{segment_name(window[0])}", window))
            return
        borrowed.windows -= 1
        if borrowed.windows:
            self._background.submit(partial(borrowed.clear, window[1]))
        else:
            self._give_back(window[0])

    # In the thread, with files of their own: readers' descriptors may be closed at any time

    def _fetch(self, path: str, window: Window, borrowed: BorrowedSegment | None) -> None:
        try:
            file = self._env.open(path)
            try:
                if borrowed is None:
                    file.fetch(WINDOW, window[1] * WINDOW)
                    self.bytes_fetched += WINDOW
                elif not borrowed.is_over:
                    self.bytes_fetched += self._borrowed.fill(borrowed, window[1], file)
            finally:
                file.close()
        except OSError:
            pass  # deleted meanwhile, or unreadable: the read reports it
        self._arrived.append(window)
        self.notify()

    def _rest(self) -> None:
        self._env.pause(max(1, int(self._late_ms())))
        self._arrived.append(REST)
        self.notify()

    def _forget(self, path: str, window: Window) -> None:
        try:
            file = self._env.open(path)
        except OSError:
            return
        file.forget(window[1] * WINDOW, WINDOW)
        file.close()

"""The pace of a task's calls: at most so many messages per second, in calls of at most so many, and not before rows are
due."""

import time
from array import array
from collections.abc import Iterator, Sequence

MESSAGES_PER_CALL = 1_000
CALLS_PER_S = 10


class CallPace:
    """Spaces calls evenly. A task that was slow does not catch up.

    Args:
        rate: messages per second; 0: no limit.
    Attributes:
        messages_max: of one call; fewer at a low rate, so that messages do not come in bursts of seconds.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self.messages_max = max(1, min(MESSAGES_PER_CALL, rate // CALLS_PER_S)) if rate else MESSAGES_PER_CALL
        self._due_s = 0.0

    def wait(self, messages: int) -> None:
        """Block until a call of so many messages may begin."""
        if not self._rate:
            return
        now_s = time.monotonic()
        if self._due_s > now_s:
            time.sleep(self._due_s - now_s)
        self._due_s = max(self._due_s, now_s) + messages / self._rate


class DueTimes:
    """Rows of a task wait until they are due. The first one's wait begins with this object, when the task begins."""

    def __init__(self) -> None:
        self._zero_s = time.monotonic()

    def parts(self, rows: array, due_ms: Sequence[int] | None) -> Iterator[array]:
        """The rows in parts, each once all of its rows are due. A row that is late does not wait.

        Args:
            due_ms: by row, after the task's beginning; a row counts as due with the one before it at the earliest.
                None: all rows are due.
        """
        if due_ms is None:
            yield rows
            return
        first = 0
        while first < len(rows):
            wait_s = self._zero_s + due_ms[rows[first]] / 1000 - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            passed_ms = (time.monotonic() - self._zero_s) * 1000
            end = first + 1
            while end < len(rows) and due_ms[rows[end]] <= passed_ms:
                end += 1
            yield rows[first:end]
            first = end

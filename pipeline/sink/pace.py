"""The pace of a task's calls: at most so many messages per second, in calls of at most so many."""

import time

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

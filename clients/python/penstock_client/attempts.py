"""The attempts of one pull: when the next one begins and where it goes, until the deadline."""

import threading
import time
from typing import Any

from penstock_client.backoff import backoff_s, pause_s
from penstock_client.codes import Action, action_of
from penstock_client.contract import Code
from penstock_client.errors import CallFailed, PullError
from penstock_client.options import Options
from penstock_client.pool import Endpoint, Pool


class PullAttempts:
    """
    Attributes:
        deadline_s: the end of the wait and of the deadline option that is added to it.
        stay: the proxy that has promised a slot at its rate limit: the next attempt has to go there.
    """

    def __init__(self, pool: Pool, options: Options, wait_ms: int) -> None:
        self._pool, self._options = pool, options
        self.deadline_s = time.monotonic() + (wait_ms + options.deadline_ms) / 1000
        self._code, self._reason = Code.UNAVAILABLE, "no proxy could be reached before the deadline"
        self._failures, self._due_s = 0, 0.0
        self.stay: Endpoint | None = None

    def wait(self, stop: threading.Event | None) -> bool:
        """Block until the next attempt may begin; False when `stop` is set.

        Raises PullError, with the last failure, when it could not begin before the deadline.
        """
        while True:
            now_s = time.monotonic()
            start_s = max(now_s, self._due_s, self._pool.usable_at_s())
            if start_s >= self.deadline_s:
                raise PullError(self._code, self._reason)
            if stop is not None and stop.is_set():
                return False
            if start_s <= now_s:
                return True
            (stop.wait if stop else time.sleep)(start_s - now_s)

    def failed(self, failure: CallFailed) -> None:
        """The call had no answer; the pool has set its proxy aside."""
        self._code, self._reason = Code.UNAVAILABLE, str(failure)

    def answered(self, response: Any, endpoint: Endpoint) -> bool:
        """Take an answer; True when the pull was served. Raises PullError when it is refused for good."""
        action = action_of(response.code)
        if action is Action.DONE:
            self._pool.praise(endpoint)
            return True
        self._code, self._reason = response.code, response.error or "no reason given"
        if action is Action.REFUSED:
            raise PullError(self._code, self._reason)
        self._failures += 1
        if action is Action.ELSEWHERE:
            self._pool.set_aside(endpoint)
        else:
            back_off_s = backoff_s(self._failures, self._options.backoff_first_ms, self._options.backoff_max_ms)
            self._due_s = time.monotonic() + pause_s(self._code, response.retry_after_ms, back_off_s)
            self.stay = endpoint if self._code == Code.RATE_LIMITED else None
        return False

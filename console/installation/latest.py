"""The latest answer to a question that many pages ask: asked at most once per interval, by one thread at a time."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """While one thread asks, the others get the answer before; only the first answer is waited for.

    So pages that look again and again cannot take all threads while an engine hangs.

    Args:
        ask: raises what `get` raises then.
        age_s: for which an answer is used.
    """

    def __init__(self, ask: Callable[[], T], age_s: float, now_s: Callable[[], float]) -> None:
        self._ask, self._age_s, self._now_s = ask, age_s, now_s
        self._lock = threading.Lock()
        self._found: tuple[float, T] | None = None

    def get(self) -> T:
        """An answer that is at most `age_s` old, or the one before while a thread asks for it."""
        found = self._found
        if found is not None and self._now_s() - found[0] < self._age_s:
            return found[1]
        if not self._lock.acquire(blocking=found is None):
            assert found is not None
            return found[1]
        try:
            found = self._found
            if found is None or self._now_s() - found[0] >= self._age_s:
                asked_s = self._now_s()
                found = (asked_s, self._ask())
                self._found = found
            return found[1]
        finally:
            self._lock.release()

    def forget(self) -> None:
        """Ask at the next call, as after a change."""
        self._found = None

"""Why a broker could not begin to lead, as it tells the controllers for some time."""

from collections.abc import Callable

TOLD_MS = 10_000
"""The controllers may come back to this broker after that."""


class RoleFault:
    """
    Args:
        now_ms: the monotonic clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._sentence, self._until_ms = "", 0

    def met(self, error: Exception) -> None:
        """The broker's role could not change."""
        self._sentence, self._until_ms = str(error), self._now_ms() + TOLD_MS

    def is_over(self) -> None:
        """The broker leads."""
        self._sentence = ""

    @property
    def sentence(self) -> str:
        """Empty: nothing is known against it."""
        return self._sentence if self._now_ms() < self._until_ms else ""

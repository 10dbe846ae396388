"""A look at an interval, until something of a process's report is settled; then the report is written."""

from collections.abc import Callable
from typing import Any

import gevent


class Settling:
    """
    Args:
        settle: whether it is settled now; called in the loop, so it must not block.
        report: writes the process's report; blocks a greenlet.
    """

    def __init__(self, interval_s: float, settle: Callable[[], bool], report: Callable[[], object]) -> None:
        self._interval_s, self._settle, self._report = interval_s, settle, report
        self._looking: Any = None

    def begin(self) -> None:
        """Look from now on, unless it is settled already: then the caller's own report says so."""
        if not self._settle() and self._looking is None:
            self._looking = gevent.get_hub().loop.timer(self._interval_s, self._interval_s)
            self._looking.start(self._look)

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.stop()
            self._looking = None

    def _look(self) -> None:
        if self._settle():
            self.close()
            gevent.spawn(self._report)

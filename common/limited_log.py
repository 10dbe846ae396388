"""Log lines that can repeat: one per minute of each kind, with the number of those that were left out.

    log = LimitedLog(logging.getLogger("penstock.engine"))
    log.warning("APPEND refused: %s", error)                          # the kind is this sentence
    log.warning("broker_group=%s: breaker opened", name, about=name)  # one kind per broker group

A line that is left out costs one look-up in a table and is never formatted.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, ClassVar

INTERVAL_S = 60.0
KINDS_MAX = 500
"""Maximum number of kinds that are told apart. Above it, lines of one sentence share its limit whatever they are
about."""


class LineKind:
    """Lines of one kind: when the next one may be written, and how many were left out since the last one."""

    __slots__ = ("left_out", "level", "next_s")

    def __init__(self, level: int) -> None:
        self.level, self.next_s, self.left_out = level, 0.0, 0


class LimitedLog:
    """A logger for lines that can repeat. Callable from every thread.

    Args:
        interval_s: least time between two lines of a kind.
        monotonic_s: the clock of the intervals.

    Attributes:
        kinds: of all limited logs of this process.
    """

    kinds: ClassVar[dict[tuple[str, str, str], "LineKind"]] = {}

    def __init__(
        self, logger: logging.Logger, interval_s: float = INTERVAL_S, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger, self._interval_s, self._monotonic_s = logger, interval_s, monotonic_s
        self._tell_s = 0.0

    def info(self, sentence: str, *values: Any, about: str = "") -> None:
        """Log at INFO. `about`: what tells this kind apart from others of the same sentence; few values."""
        self._log(logging.INFO, sentence, values, about, False)

    def warning(self, sentence: str, *values: Any, about: str = "") -> None:
        """Log at WARNING."""
        self._log(logging.WARNING, sentence, values, about, False)

    def error(self, sentence: str, *values: Any, about: str = "") -> None:
        """Log at ERROR."""
        self._log(logging.ERROR, sentence, values, about, False)

    def exception(self, sentence: str, *values: Any, about: str = "") -> None:
        """Log at ERROR, with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, sentence, values, about, True)

    def _log(self, level: int, sentence: str, values: tuple[Any, ...], about: str, has_trace: bool) -> None:
        now_s = self._monotonic_s()
        kind = self.kinds.get((self._logger.name, sentence, about))
        if kind is None:
            kind = self._add(level, sentence, about)
        if now_s < kind.next_s:
            kind.left_out += 1
            return
        left_out, kind.left_out = kind.left_out, 0
        kind.next_s = now_s + self._interval_s
        if left_out:
            sentence, values = sentence + " (%d more of these since the last line)", (*values, left_out)
        self._logger.log(level, sentence, *values, exc_info=has_trace, stacklevel=3)
        self._tell_ended(now_s)

    def _add(self, level: int, sentence: str, about: str) -> LineKind:
        if len(self.kinds) >= KINDS_MAX:
            about = ""
        return self.kinds.setdefault((self._logger.name, sentence, about), LineKind(level))

    def _tell_ended(self, now_s: float) -> None:
        """Report what was left out of kinds that have not come again, and forget these kinds."""
        if now_s < self._tell_s:
            return
        self._tell_s = now_s + self._interval_s
        for (name, sentence, about), kind in list(self.kinds.items()):
            if kind.next_s > now_s:
                continue
            self.kinds.pop((name, sentence, about), None)
            if kind.left_out:
                text = f"{about}: {sentence}" if about else sentence
                logging.getLogger(name).log(kind.level, "%d more lines were left out: %s", kind.left_out, text)

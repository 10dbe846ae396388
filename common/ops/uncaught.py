"""Exceptions that nothing has caught, as log lines: they would reach stderr past the format and the limits of the log."""

import logging
import sys
import threading
from types import TracebackType
from typing import Any

from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.uncaught"))


def log_uncaught() -> None:
    """Log what ends a thread or a greenlet, and what cannot be raised, from now on."""
    threading.excepthook = lambda found: _log("a thread", found.exc_value)
    sys.unraisablehook = lambda found: _log(f"ignored in {found.object!r:.200}", found.exc_value)
    hub: Any = sys.modules.get("gevent.hub")  # absent in a process without gevent
    if hub is not None:
        hub.Hub.print_exception = _log_in_hub


def _log_in_hub(
    self: Any, context: object, kind: object, error: BaseException | None, trace: TracebackType | None
) -> None:
    if error is not None and trace is not None:
        error = error.with_traceback(trace)
    _log("a greenlet or a callback of the loop", error)


def _log(place: str, error: BaseException | None) -> None:
    if error is None:
        return
    try:
        raise error
    except BaseException:
        limited.exception("%s has ended with an exception: %s", place, error, about=f"{place}: {type(error).__name__}")

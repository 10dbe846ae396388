"""Handling of SIGTERM and SIGINT in processes that use gevent."""

import logging
import os
import signal

import gevent
from gevent.event import Event

from common.ops.service_manager import notify

log = logging.getLogger(__name__)


class StopSignal:
    """Set by the first SIGTERM or SIGINT. A second one ends the process at once with code 1.

    Create it before the process reports that it is ready: an earlier signal would kill the process.
    """

    def __init__(self) -> None:
        self.asked = Event()
        self.name = ""
        # Watchers of the loop itself: gevent.signal_handler() does not keep the loop alive.
        self._watchers = [gevent.get_hub().loop.signal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        for watcher, number in zip(self._watchers, (signal.SIGTERM, signal.SIGINT), strict=True):
            watcher.start(self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self.asked.is_set():
            log.warning("signal=%s: received again, exiting at once", signal.Signals(number).name)
            os._exit(1)
        self.name = signal.Signals(number).name
        notify("STOPPING=1")
        self.asked.set()

    def wait(self, timeout_s: float | None = None) -> str:
        """Block this greenlet until a stop is requested; return the signal's name, or "" after the time-out."""
        self.asked.wait(timeout_s)
        return self.name


_current: StopSignal | None = None


def catch_stop() -> StopSignal:
    """Install the handlers, once per process, without waiting."""
    global _current
    _current = _current or StopSignal()
    return _current


def wait_for_stop() -> str:
    """Block this greenlet until SIGTERM or SIGINT; return the signal's name. The event loop keeps running."""
    return catch_stop().wait()

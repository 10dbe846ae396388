"""File work in the hub's thread pool: gevent patches no files, and a slow disk would stall every call of the proxy."""

from collections.abc import Callable
from typing import Any

import gevent
from gevent import Greenlet


def in_thread(work: Callable, *arguments: Any) -> Any:
    """Run it in the hub's thread pool and return its result; blocks the greenlet.

    Raises its OSError, which gevent would also print.
    """

    def attempt() -> Any:
        try:
            return work(*arguments)
        except OSError as error:
            return error

    result = gevent.get_hub().threadpool.apply(attempt)
    if isinstance(result, OSError):
        raise result
    return result


class FileWork:
    """File work for one greenlet at a time. It ends even if that greenlet is killed; `wait()` waits for it.

    The caller must not close the work's descriptors before that.
    """

    def __init__(self) -> None:
        self._running: Greenlet | None = None

    def run(self, work: Callable, *arguments: Any) -> Any:
        """As in_thread()."""
        self._running = gevent.spawn(_outcome, work, arguments)
        result = self._running.get()
        if isinstance(result, OSError):
            raise result
        return result

    def wait(self) -> None:
        """Block until nothing runs."""
        if self._running is not None:
            self._running.join()


def _outcome(work: Callable, arguments: tuple) -> Any:
    try:
        return in_thread(work, *arguments)
    except OSError as error:
        return error

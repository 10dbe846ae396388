"""Blocking disk work.

In a process patched by gevent it runs in the hub's thread pool, so that only the caller waits.
"""

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def gevent_patched() -> bool:
    """Whether gevent has patched this process's sockets. It does not import gevent."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("socket"))


def run_blocking(work: Callable[[], T]) -> T:
    """Return `work()`, which may fsync; its errors are raised here."""
    if not gevent_patched():
        return work()
    import gevent  # only in a process whose main has patched

    def attempt() -> tuple[T | None, BaseException | None]:
        try:
            return work(), None
        except BaseException as error:  # the pool would print a traceback
            return None, error

    value, error = gevent.get_hub().threadpool.apply(attempt)
    if error is not None:
        raise error
    result: T = value
    return result

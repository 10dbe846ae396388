"""Disk work beside gevent: where gevent has patched the process, the hub's thread pool does it and only the caller waits."""

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def gevent_patched() -> bool:
    """Whether this process's sockets are gevent's. Looks without importing gevent."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("socket"))


def run_blocking(work: Callable[[], T]) -> T:
    """Return `work()`, which may fsync; what it raises is raised here."""
    if not gevent_patched():
        return work()
    import gevent  # only in a process whose main chose gevent

    return gevent.get_hub().threadpool.apply(work)

"""Functions as they were before gevent patched them, for what threads of the system share with the loop."""

import sys
from collections.abc import Callable


def original(module: str, name: str) -> Callable:
    """The function as it was before gevent patched it; in a process without gevent, the function itself.

    Threads of the system and the loop may share only such locks. To wait for a lock of gevent's is to switch greenlets,
    which a callback of the loop cannot do: it would fail whenever a thread has the lock.
    """
    monkey = sys.modules.get("gevent.monkey")
    found: Callable = monkey.get_original(module, name) if monkey else getattr(__import__(module), name)
    return found

"""SIGINT as a flag.

Python raises KeyboardInterrupt wherever the main thread is, and forgets it in a destructor or in the callback of a weak
reference. A command that runs until it is interrupted would run on.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Returns a function that tells whether SIGINT has come; it raises KeyboardInterrupt as well. Main thread only."""
    came: list[int] = []

    def on_interrupt(number: int, frame: object) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)

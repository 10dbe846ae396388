"""Writing of answers in pure Python: bytes leave in pieces, at a minimum rate. The reference of `_output.pyx`.

Call `OUTPUT.add` with the size of each large answer, and with its negative once the answer has left.
"""

import time
from collections.abc import Callable
from typing import Any

import gevent

from common.net.limits import Limits

PIECE_BYTES = 16_384
COUNTED_BYTES = 16_384
"""Size above which an answer is counted in `OUTPUT`."""
_PERIODS = 6  # in which the write deadline is divided
_PRESSED = 4  # times the minimum rate is asked for while the process is short of memory


class OutputBytes:
    """Bytes of large answers that wait for their clients.

    Attributes:
        size: their number.
        watchers: called when it has become smaller.
    """

    def __init__(self) -> None:
        self.size = 0
        self.watchers: list[Callable[[], None]] = []

    def add(self, size: int) -> None:
        """Change the number."""
        self.size += size
        for watcher in self.watchers if size < 0 else ():
            watcher()


OUTPUT = OutputBytes()
"""Of all connections of this process."""


class SlowReader(OSError):
    """The client takes its answer too slowly."""


def send_at_rate(sock: Any, data: bytes, limits: Limits) -> None:
    """Send all bytes; blocks this greenlet. Raises SlowReader, OSError.

    Args:
        sock: a cooperative socket, or a TlsStream.
    """
    rest, slow_periods = memoryview(data), 0
    while rest:
        started_s, taken = time.monotonic(), 0
        until_s = started_s + limits.write_deadline_s / _PERIODS
        while rest and (left_s := until_s - time.monotonic()) > 0:
            with gevent.Timeout(left_s, False):
                sent = sock.send(rest[:PIECE_BYTES])
                rest, taken = rest[sent:], taken + sent
        if not rest:
            return
        rate = taken / (time.monotonic() - started_s)
        slow_periods = 0 if rate >= limits.write_rate_min else slow_periods + 1
        if slow_periods >= _PERIODS:
            raise SlowReader("does not read its answer")
        is_short = len(data) > COUNTED_BYTES and OUTPUT.size > limits.output_bytes_max // 2
        if is_short and rate < _PRESSED * limits.write_rate_min:
            raise SlowReader("reads its answer too slowly while memory is short")

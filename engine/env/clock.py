"""The machine's clocks, and the reference for `_clock.pyx`.

Native code calls the native form without Python. A simulated clock subclasses `NodeClock` and overrides `wall_ms` and
`monotonic_ns`.
"""

import time


class NodeClock:
    """Wall time and monotonic time of the machine."""

    def wall_ms(self) -> int:
        """Unix time in milliseconds. It may step back."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start. It never steps back."""
        return time.monotonic_ns()

    def monotonic_ms(self) -> int:
        """The same in milliseconds: the clock of all deadlines."""
        return self.monotonic_ns() // 1_000_000

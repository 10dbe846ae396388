"""Totals of delayed messages since the process started, as plain integers, for the metrics page."""


class TimerCounts:
    """Totals since start."""

    __slots__ = ("added", "cancelled", "carried", "duplicates", "fired", "late_ms", "late_ms_max", "lost")

    def __init__(self) -> None:
        self.added = self.cancelled = self.carried = self.duplicates = self.fired = self.lost = 0
        self.late_ms = self.late_ms_max = 0

    def observe(self, late_ms: int) -> None:
        """Count a fired timer and its lateness."""
        self.fired += 1
        self.late_ms += late_ms
        self.late_ms_max = max(self.late_ms_max, late_ms)

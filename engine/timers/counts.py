"""What the timers count, as plain integers; the page of metrics reads them."""


class Counts:
    """Since the process started."""

    __slots__ = ("added", "cancelled", "carried", "duplicates", "fired", "late_ms", "late_ms_max", "lost")

    def __init__(self) -> None:
        self.added = self.cancelled = self.carried = self.duplicates = self.fired = self.lost = 0
        self.late_ms = self.late_ms_max = 0

    def observe(self, late_ms: int) -> None:
        """One has fired so late."""
        self.fired += 1
        self.late_ms += late_ms
        self.late_ms_max = max(self.late_ms_max, late_ms)

"""Totals of delivery since the process started, as plain integers, for the metrics page."""


class DeliveryCounts:
    """Totals since start."""

    __slots__ = (
        "acks",
        "dead_letters",
        "delivered_bytes",
        "deliveries",
        "passed_over",
        "pulls",
        "redeliveries",
        "released",
        "stale_receipts",
    )

    def __init__(self) -> None:
        self.pulls = self.deliveries = self.delivered_bytes = self.redeliveries = 0
        self.acks = self.stale_receipts = self.dead_letters = self.passed_over = self.released = 0

"""Settings of the consumer proxy, each with the cost of a higher and a lower value."""

from dataclasses import dataclass

_RANGES = {
    "messages_max": (1, 10_000),
    "bytes_max": (1 << 16, 12 << 20),
    "wait_ms_max": (0, 30_000),
    "invisible_ms_min": (100, 60_000),
    "invisible_ms_max": (60_000, 12 * 3_600_000),
    "answer_grace_ms": (100, 60_000),
    "retry_after_ms": (1, 60_000),
    "verdicts_max": (16, 1_000_000),
    "stop_grace_ms": (0, 60_000),
}


@dataclass(frozen=True)
class Settings:
    """Bounds of one pull and of the proxy's caches."""

    messages_max: int = 10_000
    """Maximum messages of one pull. With bytes_max it keeps every reply below Thrift's frame limit: a Delivery adds at
    most reply_format.DELIVERY_OVERHEAD_MAX bytes to its message."""
    bytes_max: int = 12 << 20
    """Maximum stored bytes of one pull."""
    wait_ms_max: int = 30_000
    """Maximum duration of a long poll. Longer polls exceed idle limits of load balancers."""
    invisible_ms_min: int = 1_000
    invisible_ms_max: int = 12 * 3_600_000
    answer_grace_ms: int = 3_000
    """Time beyond a pull's own wait after which it is answered with TIMEOUT."""
    retry_after_ms: int = 200
    """Retry time for clients while the engine cannot be reached. Less reconnects sooner and loads the proxy more."""
    verdicts_max: int = 20_000
    """Maximum verdicts on credentials, and on combinations of credential, group and topics; about 1 KiB each."""
    stop_grace_ms: int = 3_000
    """Time for open answers when the process is asked to stop."""

    def faults(self) -> list[str]:
        """Every violated rule at once, each with its option and range; empty when there is none."""
        return [
            f"{name}: {low}..{high}" for name, (low, high) in _RANGES.items() if not low <= getattr(self, name) <= high
        ]

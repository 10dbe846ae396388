"""Times as commands, reports and errors show them: 2026-11-21T10:00:00Z."""

from datetime import UTC, datetime


def utc(at_ms: float) -> str:
    """A time of day by its milliseconds since 1970. The number itself where a calendar does not reach."""
    return _shown(at_ms, "seconds")


def utc_ms(at_ms: float) -> str:
    """The same with milliseconds."""
    return _shown(at_ms, "milliseconds")


def _shown(at_ms: float, precision: str) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)

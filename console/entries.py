"""Texts of form fields as values; None: the text is not one."""

from datetime import UTC, datetime

OFFSET_MAX = (1 << 63) - 1
QUEUE_MAX = 10_000
TIME_RULE = "Give a time in UTC as 2026-07-01T12:30."


def whole(text: str, high: int) -> int | None:
    """A whole number from 0 to `high`; commas may group its digits."""
    plain = text.strip().replace(",", "")
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 20 and int(plain) <= high else None


def time_ms(text: str) -> int | None:
    """Unix milliseconds of a date and time; UTC where it names no zone."""
    try:
        at = datetime.fromisoformat(text.strip())
        found = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return max(0, found)

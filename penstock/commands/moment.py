"""Moments as people write them."""

from datetime import UTC, datetime

MOMENT_RULE = "a time such as 2026-11-21T10:00:00Z (without a zone: UTC) or @1795255200000, Unix milliseconds"


def parse_moment(text: str) -> int:
    """Unix milliseconds. Raises ValueError with the rule."""
    try:
        if text.startswith("@"):
            moment_ms = int(text[1:])
        else:
            moment = datetime.fromisoformat(text)
            moment_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as fault:
        raise ValueError(MOMENT_RULE) from fault
    if not 0 <= moment_ms < 1 << 62:
        raise ValueError(MOMENT_RULE)
    return moment_ms

"""Ranges of offsets and of times."""

from typing import NamedTuple


class TimeSpan(NamedTuple):
    """Times of messages to compare, in ms since 1970; None: no bound."""

    from_ms: int | None = None
    to_ms: int | None = None


class ReadRange(NamedTuple):
    """Offsets of one queue to read: from `first` on, below `end`."""

    first: int
    end: int


def merged(ranges: list[ReadRange], gap: int) -> list[ReadRange]:
    """The ranges in order; those that overlap or lie at most `gap` apart are one."""
    found: list[ReadRange] = []
    for each in sorted(ranges):
        if found and each.first - found[-1].end <= gap:
            found[-1] = ReadRange(found[-1].first, max(found[-1].end, each.end))
        else:
            found.append(each)
    return found

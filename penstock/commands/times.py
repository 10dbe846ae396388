"""Times on the command line: an age, a date and time, or Unix milliseconds."""

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

TIME_RULE = (
    "use an age such as 90s, 10m, 2h or 3d, a time such as 2026-11-21T10:00:00Z (without a zone: UTC), "
    "or Unix milliseconds such as @1795255200000"
)
_AGE = re.compile(r"(\d{1,9})([smhd])")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(text: str) -> int:
    """Unix milliseconds. Raises ValueError with the rule."""
    try:
        if age := _AGE.fullmatch(text):
            time_ms = time.time_ns() // 1_000_000 - int(age[1]) * _UNIT_MS[age[2]]
        elif text.startswith("@"):
            time_ms = int(text[1:])
        else:
            parsed = datetime.fromisoformat(text)
            time_ms = int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as fault:
        raise ValueError(TIME_RULE) from fault
    if not 0 <= time_ms < 1 << 62:
        raise ValueError(TIME_RULE)
    return time_ms


class TimeType(click.ParamType):
    """An option's value as Unix milliseconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_time(value)
        except ValueError as rule:
            self.fail(f"{value!r} is not a time: {rule}", param, context)

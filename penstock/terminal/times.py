"""Times on the command line: an age, a date and time, or Unix milliseconds; and durations, a number with a unit."""

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
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d|)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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


class DurationType(click.ParamType):
    """An option's value as milliseconds.

    Args:
        bare: the unit of a number without one, which the option took before; empty: there must be one.
    """

    name = "TIME"

    def __init__(self, min_ms: int = 0, max_ms: int = 1 << 53, bare: str = "") -> None:
        self._min_ms, self._max_ms, self._bare = min_ms, max_ms, bare

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(value)
        unit = (found[2] or self._bare) if found else ""
        if found is None or not unit:
            self.fail(
                f"{value!r} is not a duration: use a number with a unit, such as 250ms, 5s, 10m, 2h or 3d",
                param,
                context,
            )
        millis = round(float(found[1]) * _UNIT_MS[unit])
        if not self._min_ms <= millis <= self._max_ms:
            self.fail(f"{value}: use {_shown(self._min_ms)} to {_shown(self._max_ms)}", param, context)
        return millis


def _shown(millis: int) -> str:
    """The duration in the largest unit that divides it."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if millis % _UNIT_MS[unit] == 0)
    return f"{millis // _UNIT_MS[unit]}{unit}" if millis else "0s"

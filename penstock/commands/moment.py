"""Moments as people write them."""

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

MOMENT_RULE = (
    "an age such as 90s, 10m, 2h or 3d, a time such as 2026-11-21T10:00:00Z (without a zone: UTC) or @1795255200000, "
    "Unix milliseconds"
)
_AGE = re.compile(r"(\d{1,9})([smhd])")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_moment(text: str) -> int:
    """Unix milliseconds. Raises ValueError with the rule."""
    try:
        if age := _AGE.fullmatch(text):
            moment_ms = time.time_ns() // 1_000_000 - int(age[1]) * _UNIT_MS[age[2]]
        elif text.startswith("@"):
            moment_ms = int(text[1:])
        else:
            moment = datetime.fromisoformat(text)
            moment_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as fault:
        raise ValueError(MOMENT_RULE) from fault
    if not 0 <= moment_ms < 1 << 62:
        raise ValueError(MOMENT_RULE)
    return moment_ms


class Moment(click.ParamType):
    """Unix milliseconds, from what `parse_moment` reads."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_moment(value)
        except ValueError as rule:
            self.fail(f"{value!r} is not {rule}", param, context)

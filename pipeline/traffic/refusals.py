"""Refusals by the proxies, as the console's history tells them: no stored message has a code. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pipeline.errors import ConsoleRefused


class RefusedMessages(NamedTuple):
    """Messages to a topic that were answered with one code, counted from rates of 10 s, so nearly exact.

    Attributes:
        application: that sent them; "": callers without a valid credential; None: all.
        step_s: length of a step; steps: (Unix seconds, messages), where there are any.
    """

    application: str | None
    code: int
    name: str
    messages: int
    step_s: int
    steps: list[tuple[int, float]]


def read_refusals(told: Any) -> list[RefusedMessages]:
    """The console's answer; the most frequent code first, and of a code the sum of all before its applications.

    Raises:
        ConsoleRefused: it has another form.
    """
    try:
        rows = [
            RefusedMessages(
                row["application"], int(row["code"]), str(row["name"]), int(row["messages"]),
                int(told["step_s"]),
                [(int(at_s), float(count)) for at_s, count in row["points"]],
            )
            for row in told["refused"]
        ]  # fmt: skip
    except (TypeError, ValueError, KeyError) as error:
        raise ConsoleRefused(f"console: the answer on refusals is malformed: {error!r}") from error
    most: dict[int, int] = {}
    for row in rows:
        most[row.code] = max(most.get(row.code, 0), row.messages)
    return sorted(rows, key=lambda row: (-most[row.code], row.code, row.application is not None, -row.messages))


def totals(rows: list[RefusedMessages]) -> list[RefusedMessages]:
    """The rows of all applications together."""
    return [row for row in rows if row.application is None]


def stepped(rows: list[RefusedMessages], step_s: int) -> Mapping[int, float]:
    """Refused messages of all applications and codes by the time of a report's step."""
    counts: dict[int, float] = {}
    for row in totals(rows):
        for at_s, count in row.steps:
            counts[at_s - at_s % step_s] = counts.get(at_s - at_s % step_s, 0.0) + count
    return counts

"""A forecast from a report's figures: growth, days until a disk is full, limits that do not fit. Pure.

Growth is a straight line through the steps, the first and the last of which are left out as they may be incomplete.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.errors import OptionsError
from pipeline.traffic.figures import TopicTraffic, TrafficStep

DAY_S = 86_400
STEPS_MIN = 6
"""Fewer complete steps make no line."""
SPAN_DAYS_MIN = 2.0
"""A shorter range sees a part of a day's or a week's course, which is no growth."""
DAYS_MAX = 3650
NEAR = 0.8
"""A peak above this part of a limit is told."""


class TopicLimits(NamedTuple):
    """Of a topic's definition; 0: no limit. `retention_ms` 0: the engine's."""

    retention_ms: int = 0
    retention_bytes: int = 0
    rate_messages: int = 0
    rate_bytes: int = 0


class TopicForecast(NamedTuple):
    """
    Attributes:
        bytes_per_day: of bodies, at the end of the range.
        growth_per_day: change of bytes per day with each day; None: the range is too short.
        kept_bytes: that retention keeps at this rate.
        faults: sentences on limits that do not fit.
    """

    topic: str
    bytes_per_day: float
    growth_per_day: float | None
    kept_bytes: float
    faults: list[str]


class DiskForecast(NamedTuple):
    """Attributes: days: until the free space is used up; None: not within ten years, as retention deletes before."""

    days: int | None
    free_bytes: int


def topic_limits(text: str) -> dict[str, TopicLimits]:
    """The limits per topic and family of the output of `penstock topic list -o json`. Raises OptionsError."""
    try:
        rows = json.loads(text)
        return {
            row["name"]: TopicLimits(*(int(row.get(name) or 0) for name in TopicLimits._fields)) for row in rows
        }  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OptionsError(["topics file: use the output of `penstock topic list -o json`"]) from error


def limits_of(topic: str, limits: Mapping[str, TopicLimits]) -> TopicLimits | None:
    """Of the topic's own entry, or of the family with the longest prefix; None: there is neither."""
    if topic in limits:
        return limits[topic]
    families = [name for name in limits if name.endswith("*") and topic.startswith(name[:-1])]
    return limits[max(families, key=len)] if families else None


def forecast_of(traffic: TopicTraffic, step_s: int, limits: TopicLimits | None, retention_ms: int) -> TopicForecast:
    """The forecast of one topic. `retention_ms`: the engine's, for topics without one."""
    line = line_of(traffic.steps, step_s)
    mean = traffic.size_bytes * DAY_S / traffic.span_s
    per_day, growth = (max(0.0, line[0]), line[1]) if line is not None else (mean, None)
    own = limits or TopicLimits()
    days = (own.retention_ms or retention_ms) / 1000 / DAY_S
    by_age = per_day * days
    kept = min(by_age, own.retention_bytes) if own.retention_bytes else by_age
    faults = []
    if own.retention_bytes and by_age > own.retention_bytes:
        hours = own.retention_bytes / per_day * 24
        faults.append(
            f"its size limit of {own.retention_bytes / 2**20:,.0f} MiB keeps {hours:,.1f} h, not the {days * 24:,.0f} h "
            "of its retention"
        )
    for what, peak, limit in (
        ("messages/s", traffic.peak_messages / 60, own.rate_messages), ("bytes/s", traffic.peak_bytes / 60, own.rate_bytes)
    ):  # fmt: skip
        if limit and peak > NEAR * limit:
            faults.append(f"its busiest minute had {rounded(peak)} {what}; the limit is {limit:,}")
    return TopicForecast(traffic.topic, per_day, growth, kept, faults)


def rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def line_of(steps: Sequence[TrafficStep], step_s: int) -> tuple[float, float] | None:
    """Least squares over complete steps, those without messages as 0: bytes per day at the end, and their change per day."""
    if not steps or steps[-1].at_s - steps[0].at_s < SPAN_DAYS_MIN * DAY_S:
        return None
    sizes = {each.at_s: each.size_bytes for each in steps}
    times = range(steps[0].at_s + step_s, steps[-1].at_s, step_s)
    if len(times) < STEPS_MIN:
        return None
    xs = [(at - times[-1]) / DAY_S for at in times]
    ys = [sizes.get(at, 0) * DAY_S / step_s for at in times]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)
    return mean_y - slope * mean_x, slope


def disk_forecast(
    forecasts: Sequence[TopicForecast], stored: Mapping[str, int], limits: Mapping[str, TopicLimits],
    retention_ms: int, free_bytes: int,
) -> DiskForecast:  # fmt: skip
    """Day by day: what comes, minus what retention deletes. `stored`: bytes of each topic in the range, now."""
    series: dict[str, list[float]] = {each.topic: [] for each in forecasts}
    for day in range(1, DAYS_MAX + 1):
        more = 0.0
        for each in forecasts:
            own = limits_of(each.topic, limits) or TopicLimits()
            days = max(1, round((own.retention_ms or retention_ms) / 1000 / DAY_S))
            came = series[each.topic]
            came.append(max(0.0, each.bytes_per_day + (each.growth_per_day or 0.0) * day))
            old = stored.get(each.topic, 0) * max(0.0, 1 - day / days)
            held = sum(came[-days:]) + old
            more += (min(held, own.retention_bytes) if own.retention_bytes else held) - stored.get(each.topic, 0)
        if more > free_bytes:
            return DiskForecast(day, free_bytes)
    return DiskForecast(None, free_bytes)


def as_json(forecast: TopicForecast) -> dict[str, Any]:
    return {
        **forecast._asdict(),
        "bytes_per_day": round(forecast.bytes_per_day),
        "kept_bytes": round(forecast.kept_bytes),
    }

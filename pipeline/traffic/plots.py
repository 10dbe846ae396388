"""Plots as SVG: values over time, and bars. No script and no library; a page has them inline. Pure."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 860, 210
LEFT, RIGHT, TOP, BOTTOM = 78, 14, 12, 30
TICKS = 4
TIMES_MAX = 7
LABEL_WIDE = 44
"""Width of a time's label at most."""
BAR_HEIGHT, BAR_LEFT, BAR_RIGHT = 22, 180, 130
SERIES_MAX = 3
"""Classes `series-0` and so on: the page gives each its colour, for light and for dark."""
LABEL_CHARS = 24
TIME_STEPS_S = (
    60,
    300,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    86_400,
    2 * 86_400,
    7 * 86_400,
    28 * 86_400,
    91 * 86_400,
)
DAY_S = 86_400


class TimeSeries(NamedTuple):
    """One line. A value is None where nothing is known: the line has a gap there."""

    name: str
    values: Sequence[float | None]


def time_plot(
    times_s: Sequence[int], step_s: int, series: Sequence[TimeSeries], unit: str, is_filled: bool = False
) -> str:
    """Lines over UTC, one value per step. With `is_filled`, the area below the first one is filled."""
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    first, last = times_s[0], max(times_s[-1], times_s[0] + step_s)
    largest = max([value for each in series for value in each.values if value is not None], default=0)
    top = nice_top(largest, 1024 if unit.startswith("B") else 1000)

    def x(at_s: float) -> float:
        return LEFT + wide * (at_s - first) / (last - first)

    def y(value: float) -> float:
        return TOP + high - high * value / top

    parts = []
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        parts.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid"))
        parts.append(_text(LEFT - 8, y(value) + 4, quantity(value, unit), "end"))
    for at in time_ticks(first, last):
        parts.append(_line(x(at), TOP + high, x(at), TOP + high + 4, "axis"))
        anchor = "middle" if x(at) < WIDTH - LABEL_WIDE / 2 else "end"
        parts.append(_text(min(x(at), WIDTH - 1), HEIGHT - 9, time_label(at, last - first), anchor))
    for number, each in enumerate(series):
        colour = f"series-{number % SERIES_MAX}"
        for run in _runs(times_s, each.values, step_s):
            points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in run)
            if len(run) == 1:
                parts.append(
                    f'<circle cx="{x(run[0][0]):.1f}" cy="{y(run[0][1]):.1f}" r="2.5" class="point {colour}"/>'
                )
                continue
            if is_filled and not number:
                base = f"{x(run[-1][0]):.1f},{TOP + high} {x(run[0][0]):.1f},{TOP + high}"
                parts.append(f'<polygon points="{points} {base}" class="area {colour}"/>')
            parts.append(f'<polyline points="{points}" class="{colour}"/>')
    return _svg(WIDTH, HEIGHT, parts)


def bar_plot(bars: Sequence[tuple[str, float]], total: float) -> str:
    """Horizontal bars with their values and their parts of a total."""
    high = BAR_HEIGHT * len(bars) + 4
    longest, wide = max(value for _, value in bars), WIDTH - BAR_LEFT - BAR_RIGHT
    parts = []
    for number, (name, value) in enumerate(bars):
        at, size = BAR_HEIGHT * number + 3, wide * value / longest if longest else 0
        shown = name if len(name) <= LABEL_CHARS else name[: LABEL_CHARS - 1] + "…"
        parts.append(f"<g><title>{escape(name)}</title>{_text(BAR_LEFT - 8, at + 13, shown, 'end')}</g>")
        parts.append(
            f'<rect x="{BAR_LEFT}" y="{at}" width="{max(1.0, size):.1f}" height="{BAR_HEIGHT - 6}" class="point series-0"/>'
        )
        share = f"{100 * value / total:.1f} %" if total else ""
        parts.append(_text(BAR_LEFT + size + 8, at + 13, f"{value:,.0f} · {share}"))
    return _svg(WIDTH, high, parts)


def nice_top(value: float, base: int = 1000) -> float:
    """A number not below the value that four ticks divide well, in the unit that `quantity` shows it in."""
    if value <= 0:
        return 4.0
    unit = 1.0
    while value >= base * unit:
        unit *= base
    return unit * _nice(value / unit)


def _nice(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(each * power for each in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if each * power >= value * 0.999999)


def quantity(value: float, unit: str = "") -> str:
    """A number with at most three digits, such as `1.2 k` or `34 MiB`. Units of bytes count by 1024."""
    is_bytes = unit.startswith("B")
    base, names = (1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi")) if is_bytes else (1000, ("", "k", "M", "G", "T", "P"))
    at = 0
    while abs(value) >= base and at < len(names) - 1:
        value, at = value / base, at + 1
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    number = f"{value:.{digits}f}"
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{number} {names[at]}{unit}".rstrip() if is_bytes or names[at] else f"{number} {unit}".rstrip()


def time_ticks(first_s: int, last_s: int) -> list[int]:
    """Round times within a span, at most TIMES_MAX."""
    step = next((each for each in TIME_STEPS_S if (last_s - first_s) / each <= TIMES_MAX), TIME_STEPS_S[-1])
    return list(range(-(-first_s // step) * step, last_s + 1, step))


def time_label(at_s: int, span_s: int) -> str:
    moment = datetime.fromtimestamp(at_s, UTC)
    if span_s > 3 * DAY_S:
        return f"{moment:%d %b}"
    return f"{moment:%d %b}" if at_s % DAY_S == 0 else f"{moment:%H:%M}"


def _runs(
    times_s: Sequence[int], values: Sequence[float | None], step_s: int
) -> list[list[tuple[int, float]]]:  # fmt: skip
    """The parts of a line without a gap."""
    runs: list[list[tuple[int, float]]] = []
    before = None
    for at, value in zip(times_s, values, strict=True):
        if value is not None:
            if before is None or at - before > step_s:
                runs.append([])
            runs[-1].append((at, value))
            before = at
    return runs


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return f'<div class="plot"><svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg></div>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="{kind}"/>'

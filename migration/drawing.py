"""SVG drawings for reports: lines over time, and spans on a time line. No library is needed. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 860, 260
LEFT, RIGHT, TOP, BOTTOM = 90, 160, 30, 40
ROW_HEIGHT = 26
TICKS = 4
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2")
_STYLE = 'font-family="sans-serif" font-size="12"'


class Span(NamedTuple):
    """A bar of a time line, in ms since 1970."""

    label: str
    from_ms: int
    to_ms: int


def lines(title: str, unit: str, times_s: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """A plot of values over seconds, one line per series."""
    highest = max([1.0, *(value for values in series.values() for value in values)])
    last_s = max([1.0, *times_s])
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [_text(LEFT, 18, f"{title} ({unit})")]
    for tick in range(TICKS + 1):
        y, x = TOP + high - high * tick / TICKS, LEFT + wide * tick / TICKS
        parts.append(_line(LEFT, y, LEFT + wide, y, "#ddd"))
        parts.append(_text(LEFT - 6, y + 4, f"{highest * tick / TICKS:,.0f}", "end"))
        parts.append(_text(x, HEIGHT - 18, f"{last_s * tick / TICKS:,.0f} s", "middle"))
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{LEFT + wide * at / last_s:.1f},{TOP + high - high * value / highest:.1f}"
            for at, value in zip(times_s, values, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = TOP + 14 + 18 * number
        parts.append(_line(WIDTH - RIGHT + 10, y - 4, WIDTH - RIGHT + 30, y - 4, colour))
        parts.append(_text(WIDTH - RIGHT + 36, y, name))
    return _svg(HEIGHT, parts)


def time_line(title: str, spans: Sequence[Span]) -> str:
    """Bars in the order of their rows, from the first one's begin to the last one's end."""
    first = min((each.from_ms for each in spans), default=0)
    last = max([first + 1, *(each.to_ms for each in spans)])
    wide = WIDTH - LEFT - RIGHT
    parts = [_text(10, 18, f"{title}, {(last - first) / 1000:,.1f} s in all")]
    for number, each in enumerate(spans):
        y = TOP + ROW_HEIGHT * number
        x = LEFT + wide * (each.from_ms - first) / (last - first)
        width = max(2.0, wide * (each.to_ms - each.from_ms) / (last - first))
        colour = COLOURS[number % len(COLOURS)]
        parts.append(_text(LEFT - 6, y + 15, each.label, "end"))
        parts.append(f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{ROW_HEIGHT - 8}" fill="{colour}"/>')
        parts.append(_text(x + width + 6, y + 15, f"{(each.to_ms - each.from_ms) / 1000:,.1f} s"))
    return _svg(TOP + ROW_HEIGHT * len(spans) + 10, parts)


def _svg(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {_STYLE} text-anchor="{anchor}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'

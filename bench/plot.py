"""A picture of measured lines as SVG, without a library: both axes logarithmic, the last value written at each line's end."""

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 230, 40, 50
COLOURS = ("#1b7f5c", "#c2571a", "#4a5fa5", "#8a3c7b")


class Line(NamedTuple):
    """`points`: (x, y), both above 0, in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


def log_log_plot(title: str, lines: Sequence[Line]) -> str:
    """The whole picture."""
    xs = [math.log10(x) for line in lines for x, _ in line.points]
    ys = [math.log10(y) for line in lines for _, y in line.points]
    x_low, x_high = math.floor(min(xs)), max(math.ceil(max(xs)), math.floor(min(xs)) + 1)
    y_low, y_high = math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for power in range(x_low, x_high + 1):
        x, bottom = at(10**power, 10**y_low)
        parts.append(f'<path d="M{x:.1f} {TOP}V{bottom:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">{10**power:,}</text>')
    for power in range(y_low, y_high + 1):
        left, y = at(10**x_low, 10.0**power)
        parts.append(f'<path d="M{left:.1f} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for line, colour in zip(lines, COLOURS, strict=False):
        path = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = at(*line.points[-1])
        parts.append(
            f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" fill="{colour}">{escape(line.name)}: {line.points[-1][1]:.3g}</text>'
        )
    body = "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    return f'{head}\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'

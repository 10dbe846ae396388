"""Charts: which figures of a subject one shows, its range, its points at the size of a screen, and its table."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from console.database.series_history import SeriesKey, SeriesPoint
from console.shown import amount
from console.watching.figures import figure
from console.watching.sampler import HistorySampler

RANGES = {"15m": 900, "1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}
RANGE = "1h"
POINTS_MAX = 400
ROWS = 12


class Chart(NamedTuple):
    """A chart of some figures of one subject. All have the same unit."""

    title: str
    subject: str
    names: tuple[str, ...]

    @property
    def unit(self) -> str:
        return figure(self.names[0]).unit


TOPIC_CHARTS = (("Messages per second", ("in", "out")), ("Lag of the slowest group", ("lag",)))
GROUP_CHARTS = (
    ("Acknowledged per second", ("out",)), ("Lag in messages", ("lag", "in_flight")), ("Lag in time", ("lag_s",)),
)  # fmt: skip
INSTALLATION_CHARTS = (
    ("Messages per second", ("in", "out")), ("Time to confirm a send", ("send_p50", "send_p99")),
    ("In fallback buffers", ("buffer",)), ("Oldest message in a buffer", ("buffer_s",)),
)  # fmt: skip


class ChartData(NamedTuple):
    """The points of a chart: times in Unix seconds, and per figure one value per time, None where there is none."""

    times: list[int]
    values: dict[str, list[float | None]]
    step_s: int


def chart_data(sampler: HistorySampler, chart: Chart, range_name: str, now_s: int) -> ChartData:
    """The points of a range that ends now, at most POINTS_MAX per figure: each the largest value of its time."""
    length_s = RANGES.get(range_name, RANGES[RANGE])
    keys = [SeriesKey(chart.subject, name) for name in chart.names]
    step_s, found = sampler.read(keys, now_s - length_s, now_s)
    begin_s = now_s - length_s - (now_s - length_s) % step_s
    count = max(1, -(-max(len(each) for each in found.values()) // POINTS_MAX))
    values = {key.name: _folded(found[key], count, key.name) for key in keys}
    size = max(len(each) for each in values.values())
    return ChartData([begin_s + at * step_s * count for at in range(size)], values, step_s * count)


def _folded(points: Sequence[SeriesPoint], count: int, name: str) -> list[float | None]:
    """Each `count` points as one: the mean of rates, the largest of all else."""
    is_rate = figure(name).unit == "messages/s"
    made: list[float | None] = []
    for at in range(0, len(points), count):
        part = [each for each in points[at : at + count] if not math.isnan(each.mean)]
        if not part:
            made.append(None)
        else:
            made.append(sum(each.mean for each in part) / len(part) if is_rate else max(each.largest for each in part))
    return made


def chart_table(chart: Chart, data: ChartData) -> dict[str, Any]:
    """The chart as text: a sentence per figure, and ROWS rows over its range."""
    sentences = []
    for name in chart.names:
        known = [value for value in data.values[name] if value is not None]
        words = figure(name).words
        if not known:
            sentences.append(f"{words}: nothing was measured.")
            continue
        last, mean, most = (amount(each, chart.unit) for each in (known[-1], sum(known) / len(known), max(known)))
        sentences.append(f"{words}: {last} at the end, {mean} on average, {most} at most.")
    stride = max(1, len(data.times) // ROWS)
    rows = [
        (data.times[at] * 1000, [_cell(data.values[name][at : at + stride], chart.unit) for name in chart.names])
        for at in range(0, len(data.times), stride)
    ]
    return {"sentences": sentences, "columns": [figure(name).words for name in chart.names], "rows": rows[::-1]}


def _cell(values: Sequence[float | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    return amount(max(known), unit) if known else "–"

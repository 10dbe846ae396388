"""Charts: which figures of a subject one shows, its range, its points at the size of a screen, and its table."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from console.database.series_history import SeriesKey, SeriesSteps
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


TOPIC_CHARTS = (
    ("Messages per second", ("in", "out")), ("Time to confirm a send", ("send_p50", "send_p99")),
    ("Lag of the slowest group", ("lag",)),
)  # fmt: skip
REPORTED_CHARTS = (  # of `penstock pipeline traffic --feed`
    ("Messages stored per second, by reports", ("stored",)), ("Bytes stored per second, by reports", ("stored_bytes",)),
    ("From sent to stored, by reports", ("sent_p50", "sent_p99")),
)  # fmt: skip
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


def chart_data(sampler: HistorySampler, charts: Sequence[Chart], range_name: str, now_s: int) -> list[ChartData]:
    """The points of charts over a range that ends now, at most POINTS_MAX per figure: each the largest value of its time.

    All charts of a page are read at once, because each needs to know when the engines answered.
    """
    length_s = RANGES.get(range_name, RANGES[RANGE])
    keys = {SeriesKey(chart.subject, name): None for chart in charts for name in chart.names}
    step_s, found = sampler.read(list(keys), now_s - length_s, now_s)
    begin_s = now_s - length_s - (now_s - length_s) % step_s
    made = []
    for chart in charts:
        own = {name: found[SeriesKey(chart.subject, name)] for name in chart.names}
        count = max(1, -(-max(len(each.means) for each in own.values()) // POINTS_MAX))
        values = {name: _folded(steps, count, name) for name, steps in own.items()}
        size = max(len(each) for each in values.values())
        made.append(ChartData([begin_s + at * step_s * count for at in range(size)], values, step_s * count))
    return made


def _folded(steps: SeriesSteps, count: int, name: str) -> list[float | None]:
    """Each `count` points as one: the mean of rates, the largest of all else."""
    is_rate = figure(name).unit == "messages/s"
    points = steps.means if is_rate else steps.largest
    made: list[float | None] = []
    for at in range(0, len(points), count):
        part = [each for each in points[at : at + count] if each is not None and each == each]  # not NaN
        made.append(None if not part else sum(part) / len(part) if is_rate else max(part))
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

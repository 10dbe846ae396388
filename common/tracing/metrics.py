"""Metrics of spans, of a process that traces.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_trace_spans_total{outcome} | spans, sent or lost | lost: the collector is away or too slow, or the ratio too high |
| penstock_trace_spans_waiting | spans that are not sent yet | near 5,120: the next ones are lost |
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class SpanCounts(NamedTuple):
    """Spans since the start, and those that wait now."""

    sent: int
    lost: int
    waiting: int


class SpanMetrics(Collector):
    """A collector over the counts of the export."""

    def __init__(self, counts: Callable[[], SpanCounts]) -> None:
        self._counts = counts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        counts = self._counts()
        family = CounterMetricFamily("penstock_trace_spans", "spans by outcome", labels=["outcome"])
        family.add_metric(["sent"], counts.sent)
        family.add_metric(["lost"], counts.lost)
        yield family
        yield GaugeMetricFamily("penstock_trace_spans_waiting", "spans not sent yet", value=counts.waiting)

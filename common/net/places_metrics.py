"""Metrics of a server's places.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_strangers | connections whose credential has not verified, now | near its maximum: the log names an address |
| penstock_strangers_pushed_out_total | of them, closed to make room for newer ones | rising: a crowd of strangers |
| penstock_refused_connections_total | connections without room: clients have all places | rising: raise --connections-max |
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from common.net.places import Places


class PlacesMetrics:
    """A collector over the places of a process's server."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        places = self._places
        text = "connections whose credential has not verified"
        yield GaugeMetricFamily("penstock_strangers", text, value=len(places.strangers))
        for name, text, value in (
            ("strangers_pushed_out", "strangers closed to make room for newer ones", places.pushed_out),
            ("refused_connections", "connections refused because clients have all places", places.refused),
        ):
            yield CounterMetricFamily(f"penstock_{name}", text, value=value)

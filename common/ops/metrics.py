"""Counters with a bounded number of labels: a page of metrics must not grow with the number of topics."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

OTHER = "other"


class TopLabels:
    """Gives each of the busiest labels a series until `limit` is reached; all later labels share "other".

    A label keeps its series, so every series, "other" included, only grows, as a counter must.
    """

    def __init__(self, limit: int = 50) -> None:
        self.limit = limit
        self._named: set[str] = set()

    def fold(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Return at most `limit` + 1 entries with the same sum as `counts`."""
        room = self.limit - len(self._named)
        if room > 0:
            fresh = sorted((name for name in counts if name not in self._named), key=lambda name: -counts[name])
            self._named.update(fresh[:room])
        folded = {name: counts[name] for name in self._named if name in counts}
        rest = sum(counts.values()) - sum(folded.values())
        if len(folded) < len(counts):
            folded[OTHER] = rest
        return folded


class CountsCollector:
    """A Prometheus counter family that reads its values from a mapping at scrape time.

    Args:
        read: returns totals since start by label value; called in the scrape's greenlet.
    """

    def __init__(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]], limit: int = 50
    ) -> None:
        self.name, self.text, self.label, self.read = name, text, label, read
        self.labels = TopLabels(limit)

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self.name, self.text, labels=[self.label])
        for value, count in self.labels.fold(self.read()).items():
            family.add_metric([value], count)
        yield family

    def describe(self) -> list[Metric]:
        """The family without values, because registering must not read them."""
        return [CounterMetricFamily(self.name, self.text, labels=[self.label])]

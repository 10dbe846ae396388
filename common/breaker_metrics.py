"""The breakers of a proxy as metrics.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_breaker_state | 0 closed, 1 half open, 2 open, by broker group | 2: look at that broker |
| penstock_breaker_opened_total | times opened, by broker group | growing: a broker that hangs, or a disk that stalls |
| penstock_breaker_bound_seconds | what counts as late at present, by broker group | far above 0.03: a slow disk, or a busy machine |
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from common.breaker import Breaker, State

STATES = (State.CLOSED, State.HALF_OPEN, State.OPEN)


class BreakerMetrics:
    """A collector over the (broker group's name, breaker) pairs that `breakers` tells."""

    def __init__(self, breakers: Callable[[], Iterable[tuple[str, Breaker]]]):
        self._breakers = breakers

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        labels = ["broker_group"]
        state = GaugeMetricFamily("penstock_breaker_state", "0 closed, 1 half open, 2 open", labels=labels)
        opened = CounterMetricFamily("penstock_breaker_opened", "times opened", labels=labels)
        bound = GaugeMetricFamily("penstock_breaker_bound_seconds", "an answer owed for longer is late", labels=labels)
        for name, breaker in self._breakers():
            state.add_metric([name], STATES.index(breaker.state))
            opened.add_metric([name], breaker.opened)
            bound.add_metric([name], breaker.bound_s)
        yield from (state, opened, bound)

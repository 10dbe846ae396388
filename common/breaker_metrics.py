"""Metrics of a proxy's circuit breakers.

| name | type, unit | action |
|---|---|---|
| penstock_breaker_state{broker_group} | 0 closed, 1 half open, 2 open | 2: check that broker |
| penstock_breaker_opened_total{broker_group} | times opened | growing: the broker hangs or its disk stalls |
| penstock_breaker_bound_seconds{broker_group} | time limit of an answer | far above 0.03: slow disk or machine |
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from common.breaker import Breaker, State

STATES = (State.CLOSED, State.HALF_OPEN, State.OPEN)


class BreakerMetrics:
    """A collector over the pairs (broker group's name, breaker) that `breakers` returns."""

    def __init__(self, breakers: Callable[[], Iterable[tuple[str, Breaker]]]):
        self._breakers = breakers

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        labels = ["broker_group"]
        state = GaugeMetricFamily(
            "penstock_breaker_state", "State of the circuit breaker: 0 closed, 1 half open, 2 open.", labels=labels
        )
        opened = CounterMetricFamily("penstock_breaker_opened", "Times that the circuit breaker opened.", labels=labels)
        bound = GaugeMetricFamily(
            "penstock_breaker_bound_seconds", "Time after which a missing answer is late.", labels=labels
        )
        for name, breaker in self._breakers():
            state.add_metric([name], STATES.index(breaker.state))
            opened.add_metric([name], breaker.opened)
            bound.add_metric([name], breaker.bound_s)
        yield from (state, opened, bound)

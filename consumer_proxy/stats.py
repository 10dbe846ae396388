"""Counters of the proxy: plain numbers that the hot path adds to, and their collector for Prometheus.

name | type, unit | what to do about it
penstock_consumer_pulls_total | calls | –
penstock_consumer_codes_total{code} | calls by the code of their response | 2xx: the engine or its link; 1xx: a client
penstock_consumer_pull_seconds | histogram from a pull's arrival to its reply, s; long polls wait in it | –
penstock_consumer_deliveries_total | messages delivered to clients | –
penstock_consumer_acks_total | acknowledgements, whatever their verdict or answer | –
penstock_consumer_reply_bytes_total | bytes | –
penstock_consumer_not_calls_total | frames that are no pull | rising: a client speaks another contract
penstock_consumer_refused_frames_total | calls above the limit of size | rising: a client's batches are too large
penstock_consumer_malformed_total | stored bytes that are no whole message, rejected | above 0: see the dead letters
penstock_consumer_abandoned_total | pulls whose client left before the answer | rising: client timeouts below wait_ms
penstock_consumer_given_back_total | messages given back because no client saw them; not attempts | –
penstock_consumer_timeouts_total | pulls that the engine did not answer in time | rising: look at the engine
penstock_consumer_parked | pulls that wait for the engine, now | –
penstock_consumer_connections | connections, now | near connections_max: raise it, or find the client that leaks
penstock_consumer_engine_up | 1: the link to the engine is up | 0: /readyz says why
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from common.contract import Code
from common.net.refusal import REFUSALS

LATENCY_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)  # few: each bound is a series; long polls are above 0.5 s


class Stats:
    """Counters of the process."""

    __slots__ = (
        "abandoned", "acks", "bytes_out", "codes", "deliveries", "given_back", "latencies", "latency_sum_s",
        "malformed", "not_calls", "pulls", "timeouts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.pulls = self.deliveries = self.acks = self.bytes_out = self.not_calls = 0
        self.abandoned = self.given_back = self.malformed = self.timeouts = 0
        self.codes: Counter[int] = Counter()
        self.latencies = [0] * (len(LATENCY_S) + 1)
        self.latency_sum_s = 0.0

    def answered(self, code: int, seconds: float, size: int) -> None:
        self.codes[code] += 1
        self.latencies[bisect_left(LATENCY_S, seconds)] += 1
        self.latency_sum_s += seconds
        self.bytes_out += size


class StatsCollector:
    """Exports the counters."""

    def __init__(
        self, stats: Stats, parked: Callable[[], int], connections: Callable[[], int], source_up: Callable[[], bool]
    ):
        self._stats, self._parked, self._connections, self._source_up = stats, parked, connections, source_up

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        yield self._codes()
        yield self._latency()

    def describe(self) -> list[Metric]:
        return []

    def _counters(self) -> Iterator[Metric]:
        stats = self._stats
        for name, text, value in (
            ("pulls", "Pulls received.", stats.pulls),
            ("deliveries", "Messages delivered to clients.", stats.deliveries),
            ("acks", "Acknowledgements received, whatever their verdict or answer.", stats.acks),
            ("reply_bytes", "Bytes of replies.", stats.bytes_out),
            ("not_calls", "Frames that are no pull. Growing: a client speaks another contract.", stats.not_calls),
            ("refused_frames", "Calls above the limit of size. Growing: a client's batches are too large.", REFUSALS.count),
            ("malformed", "Stored bytes that are no whole Message, rejected. Above 0: see the dead letters.", stats.malformed),
            ("abandoned", "Pulls whose client left before the answer. Growing: client timeouts below wait_ms.", stats.abandoned),
            ("given_back", "Messages given back, and not attempts, because no client saw them.", stats.given_back),
            ("timeouts", "Pulls that the engine did not answer in time. Growing: look at the engine.", stats.timeouts),
        ):  # fmt: skip
            yield CounterMetricFamily(f"penstock_consumer_{name}", text, value=value)

    def _gauges(self) -> Iterator[Metric]:
        for name, text, value in (
            ("parked", "Pulls that wait for the engine's answer.", self._parked()),
            ("connections", "Open client connections.", self._connections()),
            ("engine_up", "1 while the link to the engine is up.", int(self._source_up())),
        ):
            yield GaugeMetricFamily(f"penstock_consumer_{name}", text, value=value)

    def _codes(self) -> Metric:
        family = CounterMetricFamily("penstock_consumer_codes", "Pulls by the code of their response.", labels=["code"])
        for code, count in list(self._stats.codes.items()):
            family.add_metric([Code._VALUES_TO_NAMES.get(code, str(code))], count)
        return family

    def _latency(self) -> Metric:
        family = HistogramMetricFamily(
            "penstock_consumer_pull_seconds", "From a pull's arrival to its reply, long polls' waiting included."
        )
        total, buckets = 0, []
        for bound, count in zip((*map(str, LATENCY_S), "+Inf"), self._stats.latencies, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([], buckets, self._stats.latency_sum_s)
        return family

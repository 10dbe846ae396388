"""Metrics of the producer proxy, read at scrape time from counters that the paths keep anyway.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_producer_calls_total{path} | calls, by path hot / slow | many slow ones: credentials minted per call, or faulty clients |
| penstock_producer_messages_total{durability} | messages appended | - |
| penstock_producer_appends_total{durability} | appends | messages per append is the batching that the load makes possible |
| penstock_producer_bytes_total | bytes of calls taken; not on the Python references | - |
| penstock_producer_refused_total{code} | messages | 2xx: the engine or its link; 1xx: a client |
| penstock_producer_send_seconds | histogram of hot calls, s; not on the Python references | above 1 ms without load: look at the engine |
| penstock_producer_requests_total | sends that waited for a reply | - |
| penstock_producer_replies_total | replies passed on to waiting calls | - |
| penstock_producer_late_replies_total | replies for which no call waited any more | many: reply_wait_ms is too short for the consumers |
| penstock_producer_connections | connections open | near connections_max: raise it, or find the client that leaks |
| penstock_producer_queue_limit{durability} | messages that may wait for the engine | falling: the engine is slow; `penstock gate show` |
| penstock_producer_queue_waiting{durability} | messages that wait for the engine | near the limit: overload, low grades are refused |
| penstock_producer_limits_lent | cluster-wide limits in use with a lent slice | 0 under load: the engine was away, static shares apply |
| penstock_producer_limits_processes | producer proxies among which static shares are divided | wrong: the engine is away |
| penstock_producer_backlogged_topics | topics in use that are BACKLOGGED | above 0: required groups are too slow; `penstock group lag` |
| penstock_producer_topic_figures | topics with figures on /topic-figures | - |
| penstock_producer_topic_figures_pushed_out_total | topics whose figures made room for others | rising: raise --topic-figures |
| penstock_failed_credentials_total | calls whose credential was refused | rising: an old key, a wrong clock, or guessed credentials |
| penstock_producer_refused_frames_total | calls above the limit of size | rising: a client's batches are too large; the log names one |
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from common.contract import Code
from common.net import Server
from common.net.refusal import REFUSALS
from engine.client.brokers import Brokers
from engine.client.durability import LANES
from producer_proxy.admission.admission import SendAdmission
from producer_proxy.send.send import SendService
from producer_proxy.topic_figures import TopicFigures


class SendMetrics:
    """A collector over the proxy's parts; `front` is None where the hot path is not built."""

    def __init__(
        self, server: Server, service: SendService, brokers: Brokers, front: Any, admission: SendAdmission,
        figures: TopicFigures,
    ) -> None:  # fmt: skip
        self._server, self._service, self._brokers, self._front = server, service, brokers, front
        self._admission, self._figures = admission, figures

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "penstock_producer_connections", "open connections", value=len(self._server.connections)
        )
        yield GaugeMetricFamily(
            "penstock_producer_limits_lent", "cluster-wide limits with a lent share", value=self._admission.leases.lent
        )
        yield GaugeMetricFamily(
            "penstock_producer_limits_processes", "living producer proxies", value=self._admission.leases.live
        )
        yield GaugeMetricFamily(
            "penstock_producer_backlogged_topics", "topics refused as backlogged", value=self._admission.backlogs.open
        )
        calls = CounterMetricFamily("penstock_producer_calls", "calls answered", labels=["path"])
        calls.add_metric(["slow"], self._service.answered)
        if self._front is not None:
            calls.add_metric(["hot"], self._front.hot_calls)
            yield self._latency()
            yield CounterMetricFamily("penstock_producer_bytes", "bytes of calls taken", value=self._front.bytes_in)
        yield calls
        for name, field in (("penstock_producer_messages", "messages"), ("penstock_producer_appends", "appends")):
            family = CounterMetricFamily(name, f"{field} sent to the broker", labels=["durability"])
            for row, lanes in zip(LANES, self._brokers.lanes, strict=True):
                family.add_metric([row.label], getattr(lanes, field))
            yield family
        yield CounterMetricFamily(
            "penstock_failed_credentials", "calls whose credential was refused", value=self._service.brake.attempts
        )
        yield CounterMetricFamily(
            "penstock_producer_refused_frames", "frames above the limit of size", value=REFUSALS.count
        )
        yield from (*self._kept_figures(), *self._queues())
        requests = self._service.requests
        for name, text, value in (
            ("penstock_producer_requests", "sends that waited for a reply", requests.asked),
            ("penstock_producer_replies", "replies passed on", requests.replies),
            ("penstock_producer_late_replies", "replies for which no call waited any more", requests.late),
        ):
            yield CounterMetricFamily(name, text, value=value)
        refused = CounterMetricFamily(
            "penstock_producer_refused", "messages answered with another code than OK", labels=["code"]
        )
        for code, count in self._refused().items():
            refused.add_metric([Code._VALUES_TO_NAMES.get(code, str(code))], count)
        yield refused

    def _queues(self) -> Iterator[Metric]:
        """Values summed over all brokers."""
        limit = GaugeMetricFamily(
            "penstock_producer_queue_limit", "messages that may wait for the engine", labels=["durability"]
        )
        waiting = GaugeMetricFamily(
            "penstock_producer_queue_waiting", "messages that wait for it", labels=["durability"]
        )
        for row, lanes in zip(LANES, self._brokers.lanes, strict=True):
            there = [lane for lane in lanes.lanes if lane is not None]
            limit.add_metric([row.label], sum(lane.limit.limit for lane in there))
            waiting.add_metric([row.label], sum(lane.waiting for lane in there))
        yield limit
        yield waiting

    def _kept_figures(self) -> Iterator[Metric]:
        name, figures = "penstock_producer_topic_figures", self._figures
        yield GaugeMetricFamily(name, "topics on /topic-figures", value=len(figures))
        yield CounterMetricFamily(f"{name}_pushed_out", "topics that made room", value=figures.pushed_out)

    def _refused(self) -> dict[int, int]:
        totals = dict(self._service.codes)
        if self._front is not None:
            for code, count in self._front.codes.items():
                totals[code] = totals.get(code, 0) + count
        return totals

    def _latency(self) -> Metric:
        buckets, total = [], 0
        for number, count in enumerate(self._front.latency_buckets()):
            total += count
            buckets.append((repr(62.5e-6 * 2**number), total))
        buckets[-1] = ("+Inf", total)
        family = HistogramMetricFamily("penstock_producer_send_seconds", "from a hot call's bytes to its answer")
        family.add_metric([], buckets, self._front.latency_sum_s)
        return family

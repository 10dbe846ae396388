"""Metrics of the producer proxy, read at scrape time from counters that the paths keep anyway.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_send_calls_total | calls, by path hot / slow | many slow ones: credentials minted per call, or faulty clients |
| penstock_send_messages_total | messages appended, by durability | - |
| penstock_send_appends_total | appends, by durability | messages per append is the batching that the load makes possible |
| penstock_send_bytes_total | bytes of calls taken | - |
| penstock_send_refused_total | messages, by contract code | 2xx: the engine or its link; 1xx: a client |
| penstock_send_seconds | histogram of hot calls, s | above 1 ms without load: look at the engine |
| penstock_send_requests_total | sends that waited for a reply | - |
| penstock_send_replies_total | replies passed on to waiting calls | - |
| penstock_send_late_replies_total | replies for which no call waited any more | many: reply_wait_ms is too short for the consumers |
| penstock_connections | connections open | near connections_max: raise it, or find the client that leaks |
| penstock_queue_limit | messages that may wait for the engine, by durability | falling: the engine is slow; `penstock gate show` |
| penstock_queue_waiting | messages that wait for the engine, by durability | near the limit: overload, low grades are refused |
| penstock_limits_lent | cluster-wide limits in use with a lent slice | 0 under load: the engine was away, static shares apply |
| penstock_limits_processes | producer proxies among which static shares are divided | wrong: the engine is away |
| penstock_backlogged_topics | topics in use that are BACKLOGGED | above 0: their required groups are too slow; `penstock group lag` |
| penstock_failed_credentials_total | calls whose credential was refused | rising: an old key, a wrong clock, or guessed credentials |
| penstock_key_last_used_seconds | Unix time by app and key, of the last 1,000 keys | long ago for the old key of two: revoke it |
| penstock_certificate_left_seconds | s until the TLS certificate expires | below 14 days: renew it |
| penstock_certificate_refused | 1: changed TLS files cannot be used | the log says why; the old ones are in use |
| penstock_refused_frames_total | calls above the limit of size | rising: a client's batches are too large; the log names one |
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from common.net import Server
from common.net.refusal import REFUSALS
from engine.client.brokers import Brokers
from engine.client.durability import LANES
from producer_proxy.admission.admission import SendAdmission
from producer_proxy.send.send import SendService


class SendMetrics:
    """A collector over the proxy's parts; `front` is None where the hot path is not built."""

    def __init__(
        self, server: Server, service: SendService, brokers: Brokers, front: Any, admission: SendAdmission
    ) -> None:
        self._server, self._service, self._brokers, self._front = server, service, brokers, front
        self._admission = admission

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("penstock_connections", "open connections", value=len(self._server.connections))
        yield GaugeMetricFamily(
            "penstock_limits_lent", "cluster-wide limits with a lent share", value=self._admission.leases.lent
        )
        yield GaugeMetricFamily(
            "penstock_limits_processes", "living producer proxies", value=self._admission.leases.live
        )
        yield GaugeMetricFamily(
            "penstock_backlogged_topics", "topics refused as backlogged", value=self._admission.lags.open
        )
        calls = CounterMetricFamily("penstock_send_calls", "calls answered", labels=["path"])
        calls.add_metric(["slow"], self._service.answered)
        if self._front is not None:
            calls.add_metric(["hot"], self._front.hot_calls)
            yield self._latency()
            yield CounterMetricFamily("penstock_send_bytes", "bytes of calls taken", value=self._front.bytes_in)
        yield calls
        for name, field in (("penstock_send_messages", "messages"), ("penstock_send_appends", "appends")):
            family = CounterMetricFamily(name, f"{field} sent to the broker", labels=["durability"])
            for row, lanes in zip(LANES, self._brokers.lanes, strict=True):
                family.add_metric([row.label], getattr(lanes, field))
            yield family
        yield CounterMetricFamily(
            "penstock_failed_credentials", "calls whose credential was refused", value=self._service.brake.attempts
        )
        yield CounterMetricFamily("penstock_refused_frames", "frames above the limit of size", value=REFUSALS.count)
        yield from self._queues()
        requests = self._service.requests
        for name, text, value in (
            ("penstock_send_requests", "sends that waited for a reply", requests.asked),
            ("penstock_send_replies", "replies passed on", requests.replies),
            ("penstock_send_late_replies", "replies for which no call waited any more", requests.late),
        ):
            yield CounterMetricFamily(name, text, value=value)
        refused = CounterMetricFamily(
            "penstock_send_refused", "messages answered with another code than OK", labels=["code"]
        )
        for code, count in self._refused().items():
            refused.add_metric([str(code)], count)
        yield refused

    def _queues(self) -> Iterator[Metric]:
        """Values summed over all brokers."""
        limit = GaugeMetricFamily(
            "penstock_queue_limit", "messages that may wait for the engine", labels=["durability"]
        )
        waiting = GaugeMetricFamily("penstock_queue_waiting", "messages that wait for it", labels=["durability"])
        for row, lanes in zip(LANES, self._brokers.lanes, strict=True):
            there = [lane for lane in lanes.lanes if lane is not None]
            limit.add_metric([row.label], sum(lane.limit.limit for lane in there))
            waiting.add_metric([row.label], sum(lane.waiting for lane in there))
        yield limit
        yield waiting

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
        family = HistogramMetricFamily("penstock_send_seconds", "from a hot call's bytes to its answer")
        family.add_metric([], buckets, self._front.latency_sum_s)
        return family

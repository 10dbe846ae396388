"""The Kafka bridge's page of metrics.

name | type, unit | what to do about it
penstock_kafka_bridge_links | now | 0 while proxies run: look at their --kafka-bridge and keys
penstock_kafka_bridge_connected{cluster} | 1: there is a producer | 0: /readyz says why
penstock_kafka_bridge_messages_total{cluster,code} | answers, by result code | rises beside 0: the proxies' logs say why
penstock_kafka_bridge_requests{cluster} | without an answer, now | grows: the cluster is slow or away
penstock_kafka_bridge_waiting_bytes{cluster} | not handed to Kafka's client yet | grows: this process has too little CPU
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kafka_bridge.clusters import Clusters
from kafka_bridge.server import BridgeServer

_PREFIX = "penstock_kafka_bridge_"


class BridgeMetrics:
    """A Prometheus collector over one bridge."""

    def __init__(self, server: BridgeServer, clusters: Clusters) -> None:
        self._server, self._clusters = server, clusters

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(_PREFIX + "links", "open links", value=self._server.links)
        messages = CounterMetricFamily(_PREFIX + "messages", "answers by code", labels=["cluster", "code"])
        gauges = {
            name: GaugeMetricFamily(_PREFIX + name, text, labels=["cluster"])
            for name, text in (
                ("connected", "1: there is a producer"),
                ("requests", "without an answer"),
                ("waiting_bytes", "not handed to Kafka's client yet"),
            )
        }
        for each in self._clusters.all:
            for code, count in sorted(each.counts.items()):
                messages.add_metric([each.name, str(code)], count)
            gauges["connected"].add_metric([each.name], each.is_open)
            gauges["requests"].add_metric([each.name], each.in_flight)
            gauges["waiting_bytes"].add_metric([each.name], each.waiting_bytes)
        yield messages
        yield from gauges.values()

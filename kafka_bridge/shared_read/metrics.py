"""Dual read on the bridge's page of metrics, by hidden topic; the copies themselves are among those of copy_in.

name | type, unit | what to do about it
penstock_kafka_shared_read_partitions{topic} | that the group has given to this bridge | 0 at all: other members have them
penstock_kafka_shared_read_lost_total{topic} | partitions taken without being asked for | rises: a bridge pauses
penstock_kafka_shared_read_order_broken_total{topic} | partitions of a group with an order, given up too early | see docs/kafka.md
penstock_kafka_shared_read_repeated_total{topic} | records read again, not stored again | rises after a kill, or a lost commit
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kafka_bridge.copy_in.copies import InCopies
from kafka_bridge.shared_read.copier import SharedTopic

_PREFIX = "penstock_kafka_shared_read_"
_COUNTED = {
    "lost": "partitions that the group took without asking",
    "order_broken": "partitions that were given up before their messages were acknowledged",
    "repeated": "records that were read again, and not stored again",
}


class SharedReadMetrics:
    """A Prometheus collector over the copies of one bridge."""

    def __init__(self, copies: InCopies) -> None:
        self._copies = copies

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        copiers = [each for each in self._copies.all if isinstance(each, SharedTopic)]
        partitions = GaugeMetricFamily(
            _PREFIX + "partitions", "that the group has given to the bridge", labels=["topic"]
        )
        for each in copiers:
            partitions.add_metric([each.plan.topic], each.tallies.partitions)
        yield partitions
        for name, text in _COUNTED.items():
            counter = CounterMetricFamily(_PREFIX + name, text, labels=["topic"])
            for each in copiers:
                counter.add_metric([each.plan.topic], getattr(each.tallies, name))
            yield counter

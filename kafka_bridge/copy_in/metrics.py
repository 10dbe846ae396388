"""The copies from Kafka on the bridge's page of metrics.

name | type, unit | what to do about it
penstock_kafka_copy_in_records_total{topic} | stored in the engine since the bridge began | stops while Kafka gets records: see standing
penstock_kafka_copy_in_skipped_total{topic} | records that came from the topic itself | grows only while the topic is copied to Kafka, too
penstock_kafka_copy_in_claimed{topic} | 1: this bridge copies the topic | 0 at all bridges for long: is a bridge hanging?
penstock_kafka_copy_in_standing{topic} | partitions that stand still, or 1 for the topic | above 0: /readyz says which, since when and why
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kafka_bridge.copy_in.copies import InCopies

_PREFIX = "penstock_kafka_copy_in_"


class CopyInMetrics:
    """A Prometheus collector over the copies of one bridge."""

    def __init__(self, copies: InCopies) -> None:
        self._copies = copies

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        label = ["topic"]
        records = CounterMetricFamily(_PREFIX + "records", "stored in the engine", labels=label)
        skipped = CounterMetricFamily(_PREFIX + "skipped", "came from the topic itself", labels=label)
        claimed = GaugeMetricFamily(_PREFIX + "claimed", "1: this bridge copies the topic", labels=label)
        standing = GaugeMetricFamily(_PREFIX + "standing", "partitions that stand still", labels=label)
        for each in self._copies.all:
            name = [each.plan.topic]
            records.add_metric(name, each.stored)
            skipped.add_metric(name, each.skipped)
            claimed.add_metric(name, each.is_claimed)
            standing.add_metric(name, len(each.standstills))
        yield from (records, skipped, claimed, standing)

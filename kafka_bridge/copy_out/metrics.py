"""The copies to Kafka on the bridge's page of metrics.

name | type, unit | what to do about it
penstock_kafka_copy_out_records_total{topic} | committed in Kafka since it began | stops while messages come: see standing
penstock_kafka_copy_out_skipped_total{topic} | came from the Kafka topic itself | grows only while that is copied, too
penstock_kafka_copy_out_standing{topic} | 1: nothing is copied now | /readyz says why
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kafka_bridge.copy_out.copies import OutCopies

_PREFIX = "penstock_kafka_copy_out_"


class CopyOutMetrics:
    """A Prometheus collector over the copies of one bridge."""

    def __init__(self, copies: OutCopies) -> None:
        self._copies = copies

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        label = ["topic"]
        records = CounterMetricFamily(_PREFIX + "records", "committed in Kafka", labels=label)
        skipped = CounterMetricFamily(_PREFIX + "skipped", "came from the Kafka topic itself", labels=label)
        standing = GaugeMetricFamily(_PREFIX + "standing", "1: nothing is copied now", labels=label)
        for name, copier in self._copies.copiers.items():
            records.add_metric([name], copier.copied)
            skipped.add_metric([name], copier.skipped)
            standing.add_metric([name], bool(copier.standing))
        yield from (records, skipped, standing)

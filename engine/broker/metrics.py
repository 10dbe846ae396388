"""Metrics of a broker of a group with replicas; a master has those of `engine.server.metrics` besides.

name | type, unit | what to do about it
penstock_broker_leads | 0 or 1 | –
penstock_broker_epoch | epoch of the adopted record | rises often: brokers or their links fail; `penstock broker history` says why
penstock_broker_follows | 0 or 1, of a slave | 0 for long: it cannot follow; its log says why
penstock_broker_unconfirmed_bytes | bytes, of a master | stays high: a slave is slow, or a lone master lost its coordination
penstock_broker_follower_gap_bytes{broker} | bytes, of a master's slaves | grows: the slave or its disk is too slow
penstock_broker_follower_lacks_since_timestamp_seconds{broker} | of the first message that a slave lacks, 0: none | long ago: as above
penstock_broker_repaired_ranges_total | ranges fetched from another broker | rises: the disk fails
penstock_broker_repaired_bytes_total | bytes of them | rises: the disk fails
penstock_broker_repairs_failed_total | tries | rises: the log says what no other broker has, or why none is reached
penstock_broker_slave_reads_total | reads and look-ups that this broker has served as a slave | –
penstock_broker_lent_bytes_total | bytes that this broker has read for another one: cold reads of its master, repairs | –
penstock_broker_redirected_reads_total | reads, of a master's clients, that were left to slaves | –
penstock_broker_damaged_segments | segments with damage that is not repaired | above 0 for long: as above
penstock_broker_diverged_folders | folders below diverged/ in the data directory | grows: `penstock log diverged` lists and removes them
penstock_broker_log_end_position_bytes | bytes | far apart for long: the disk is slow
penstock_broker_log_durable_position_bytes | bytes | far apart for long: the disk is slow
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engine.broker.host import RepairCounts
from engine.broker.life import BrokerLife
from engine.broker.piece_reads import PieceReads
from engine.broker.standby import Standby
from engine.log.upkeep.scrub import ScrubCounts
from engine.server.metrics import FORBIDDEN, EngineMetrics
from engine.server.server import LinkServer

_PREFIX = "penstock_broker_"


class BrokerMetrics:
    """A Prometheus collector over what is open now.

    Args:
        life: returns the open log; None: there is none.
        standby: serves while this broker does not lead.
        pieces: reads the log for other brokers.
        diverged: the number of folders with what replication has put aside.
        now_ms: the monotonic clock.
    """

    def __init__(
        self, life: Callable[[], BrokerLife | None], server: LinkServer, scrub: ScrubCounts,
        repairs: RepairCounts, standby: Standby, pieces: PieceReads, diverged: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._life, self._server, self._scrub, self._repairs, self._now_ms = life, server, scrub, repairs, now_ms
        self._standby, self._pieces, self._diverged = standby, pieces, diverged

    def collect(self) -> Iterator[Metric]:
        for name, count, text in (
            ("repaired_ranges", self._repairs.ranges, "Ranges of the log that were fetched from another broker."),
            ("repaired_bytes", self._repairs.bytes, "Bytes of them."),
            ("repairs_failed", self._repairs.failed, "Tries to repair a segment that left damage."),
            ("lent_bytes", self._pieces.bytes_read, "Bytes of the log read for another broker."),
            ("slave_reads", self._standby.reads_served, "Reads and look-ups that this broker has served as a slave."),
        ):
            yield CounterMetricFamily(_PREFIX + name, text, value=count)
        yield GaugeMetricFamily(_PREFIX + "damaged_segments", "Segments with damage.", value=self._repairs.damaged)
        text = "Folders with what replication has taken out of the log."
        yield GaugeMetricFamily(_PREFIX + "diverged_folders", text, value=self._diverged())
        life = self._life()
        if life is None or life.node is None:  # a master has it among the engine's
            forbidden = self._standby.handshake.keys.forbidden
            yield CounterMetricFamily("penstock_engine_forbidden_requests", FORBIDDEN, value=forbidden)
        if life is not None:
            yield from self._of(life)

    def _of(self, life: BrokerLife) -> Iterator[Metric]:
        """Metrics of the open log."""
        group, store = life.group, life.store
        for name, value, text in (
            ("leads", int(life.node is not None), "Whether this broker serves clients."),
            ("epoch", group.epoch, "Epoch of the adopted record."),
            ("follows", int(group.follows), "Whether this slave takes frames of its master."),
            ("unconfirmed_bytes", life.unconfirmed_bytes, "Log bytes that the group has not confirmed."),
            ("log_end_position_bytes", store.end_position, "Log bytes in the page cache."),
            ("log_durable_position_bytes", store.durable_position, "Log bytes on the disk."),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)
        gaps = GaugeMetricFamily(
            _PREFIX + "follower_gap_bytes", "Log bytes that a slave does not have yet.", labels=["broker"]
        )
        since = GaugeMetricFamily(
            _PREFIX + "follower_lacks_since_timestamp_seconds",
            "Time of the first message that a slave lacks.",
            labels=["broker"],
        )
        for name, each in sorted(group.report(self._now_ms()).followers.items()):
            gaps.add_metric([name], each.gap)
            since.add_metric([name], each.lacks_since_ms / 1000)
        yield gaps
        yield since
        if life.node is not None:
            yield CounterMetricFamily(
                _PREFIX + "redirected_reads", "Reads that were left to slaves.", value=life.node.reads.redirected
            )
            yield from EngineMetrics(life.node, self._server, self._scrub).collect()

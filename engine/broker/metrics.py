"""Metrics of a broker of a group with replicas; a master has those of `engine.server.metrics` besides.

name | type, unit | what to do about it
penstock_broker_leads | 0 or 1 | –
penstock_broker_epoch | epoch of the adopted record | rises often: brokers or their links fail; `penstock broker history` says why
penstock_broker_follows | 0 or 1, of a slave | 0 for long: it cannot follow; its log says why
penstock_broker_unconfirmed_bytes | bytes, of a master | stays high: a slave is slow, or a lone master lost its coordination
penstock_broker_follower_gap_bytes{broker} | bytes, of a master's slaves | grows: the slave or its disk is too slow
penstock_broker_log_end_position, _log_durable_position | bytes | far apart for long: the disk is slow
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from engine.broker.life import BrokerLife
from engine.log.upkeep.scrub import ScrubCounts
from engine.server.metrics import EngineMetrics
from engine.server.server import LinkServer

_PREFIX = "penstock_broker_"


class BrokerMetrics:
    """A Prometheus collector over what is open now.

    Args:
        life: returns the open log; None: there is none.
        now_ms: the monotonic clock.
    """

    def __init__(
        self, life: Callable[[], BrokerLife | None], server: LinkServer, scrub: ScrubCounts, now_ms: Callable[[], int]
    ) -> None:
        self._life, self._server, self._scrub, self._now_ms = life, server, scrub, now_ms

    def collect(self) -> Iterator[Metric]:
        life = self._life()
        if life is None:
            return
        group, store = life.group, life.store
        for name, value, text in (
            ("leads", int(life.node is not None), "Whether this broker serves clients."),
            ("epoch", group.epoch, "Epoch of the adopted record."),
            ("follows", int(group.follows), "Whether this slave takes frames of its master."),
            ("unconfirmed_bytes", life.unconfirmed_bytes, "Log bytes that the group has not confirmed."),
            ("log_end_position", store.end_position, "Log bytes in the page cache."),
            ("log_durable_position", store.durable_position, "Log bytes on the disk."),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)
        gaps = GaugeMetricFamily(
            _PREFIX + "follower_gap_bytes", "Log bytes that a slave does not have yet.", labels=["broker"]
        )
        for name, each in sorted(group.report(self._now_ms()).followers.items()):
            gaps.add_metric([name], each.gap)
        yield gaps
        if life.node is not None:
            yield from EngineMetrics(life.node, self._server, self._scrub).collect()

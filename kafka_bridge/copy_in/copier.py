"""Tools that all copiers of a bridge share."""

import logging
from collections.abc import Callable
from contextlib import suppress

from common.clock import Clock
from common.config.errors import EntryNotFound, VersionConflict
from common.config.store import ConfigStore
from common.kafka.base import KafkaDriver
from common.limited_log import LimitedLog
from kafka_bridge.connecting import Connections, connection_of
from kafka_bridge.copy_in.engine_queues import Connect, Groups

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
BACKOFF_S, LOGIN_BACKOFF_S, CLAIM_S = 1.0, 5.0, 1.0
RACES_MAX = 5


class CopyTools:
    """What all copiers of one bridge share.

    Args:
        groups: asked before each run for the broker groups; another answer ends the run.
        connect: makes a link to a broker group.
        connections: reads the files of a Kafka cluster.
    """

    def __init__(
        self, store: ConfigStore, clock: Clock, groups: Callable[[], Groups], connect: Connect,
        drivers: Callable[..., KafkaDriver], connections: Connections = connection_of,
    ) -> None:  # fmt: skip
        self.store, self.clock, self.groups, self.connect, self.drivers = store, clock, groups, connect, drivers
        self.connections = connections


def grow_entry(store: ConfigStore, kind: str, name: str, partitions: int) -> None:
    """Make an entry have at least so many queues, by compare-and-set. Raises ConfigError."""
    for _ in range(RACES_MAX):
        found = store.get(kind, name)
        if found is None:
            raise EntryNotFound(
                f'{kind} "{name}": it has no entry of its own, so its queues cannot follow the partitions in Kafka: '
                "create it"
            )
        if found.value.get("queues", 0) >= partitions:
            return
        with suppress(VersionConflict):
            store.put(kind, name, {**found.value, "queues": partitions}, found.version)
            limited.info("%s=%s: %d queues, as many as Kafka has partitions", kind, name, partitions)
            return

"""Topics that proxies write to both sides: their queues follow the partitions in Kafka, as those of a copied topic do.

No copier reads such a topic. Without more queues, proxies cannot write to the engine what Kafka's client has put into a
partition that was added: it waits in their repair journals.
"""

import logging
import threading
from collections import defaultdict
from contextlib import closing

from common.config.definitions import KafkaClusterDefinition, TopicDefinition
from common.config.errors import ConfigError
from common.config.text_values import KAFKA_HOME, kafka_cluster_of
from common.config.view import ConfigView
from common.kafka.base import ClusterAdmin
from common.kafka.errors import KafkaFault
from common.limited_log import LimitedLog
from common.names import stored_name
from common.readiness import Note
from engine.client.admin import AdminError
from engine.client.durability import number_of
from engine.link.errors import LinkError
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_in.copier import CopyTools, grow_entry
from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.heartbeat import Heartbeat

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
LOOK_S = 1.0
"""Interval at which Kafka is asked for the numbers of partitions, while there are such topics."""
IDLE_S = 30.0
JOIN_S = 3.0


class DualTopics:
    """Begins at once. Several bridges may follow the same topics.

    Attributes:
        fault: why queues do not follow now; empty: they do.
    """

    def __init__(self, view: ConfigView, tools: CopyTools) -> None:
        self._view, self._tools, self.fault = view, tools, ""
        self._heart = Heartbeat(tools.clock.monotonic_s)
        self._admins: dict[str, tuple[KafkaClusterDefinition, FollowedConnection, ClusterAdmin]] = {}
        self._made: dict[str, tuple[int, object]] = {}
        self._wanted: dict[str, list[str]] = {}
        self._seen, self._is_closed = 0, False
        self._changed = threading.Event()
        view.on_change(self._changed.set)
        self._thread = threading.Thread(target=self._follow, name="dual topics", daemon=True)
        self._thread.start()

    def health(self) -> dict[str, bool | str]:
        """For /readyz: a note while queues do not follow; callers are served all the same."""
        fault = self.fault or self._heart.fault
        return {"queues of dual writes": Note(fault) if fault else True} if self._wanted else {}

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()
        self._thread.join(JOIN_S)

    def _follow(self) -> None:
        while not self._is_closed:
            fault = ""
            self._heart.beat()
            try:
                self._look()
            except (KafkaFault, ConfigError, AdminError, LinkError, OSError) as found:
                fault = str(found)
                limited.warning("queues of dual writes: %s", fault)
            except Exception as found:
                fault = f"internal error: {found}"
                limited.exception("queues of dual writes: internal error")
            if fault:
                self._close_admins()
            self.fault = fault
            self._heart.rest()
            self._changed.clear()
            self._changed.wait(LOOK_S if self._wanted else IDLE_S)
        self._close_admins()

    def _look(self) -> None:
        generation = self._view.generation
        if generation != self._seen:
            self._wanted, self._seen = topics_of(self._view), generation
        for cluster, names in self._wanted.items():
            for name, topic in self._admin(cluster).topics(names).items():
                self._grow(name, topic.partitions)
        for cluster in [each for each in self._admins if each not in self._wanted]:
            self._admins.pop(cluster)[-1].close()

    def _admin(self, cluster: str) -> ClusterAdmin:
        wanted = self._view.kafka_cluster(cluster)
        if wanted is None:
            raise KafkaFault(f'kafka "{cluster}": the configuration does not have this cluster')
        if cluster in self._admins:
            definition, followed, admin = self._admins[cluster]
            if definition == wanted and not followed.is_outdated():
                return admin
            self._admins.pop(cluster)[-1].close()
        followed = FollowedConnection(wanted, self._tools.connections)
        admin = self._tools.drivers(wanted).admin(followed.opened)
        self._admins[cluster] = wanted, followed, admin
        return admin

    def _grow(self, name: str, partitions: int) -> None:
        definition = self._view.topic(name)
        if definition is None:
            return
        if definition.queues < partitions:
            grow_entry(self._tools.store, TopicDefinition.kind, name, partitions)
        groups, queues = self._tools.groups(), max(partitions, definition.queues)
        if not groups or self._made.get(name) == (queues, groups):
            return
        # Proxies make an engine's queues when they send; a plan compares both sides without a send, too.
        stored, durability = stored_name(name, definition.made_ms), number_of(definition.durability)
        with closing(EngineQueues(stored, durability, groups, self._tools.connect, definition.ranges)) as engine:
            for group in groups:
                engine.create(group, queues)
        self._made[name] = queues, groups

    def _close_admins(self) -> None:
        for *_, admin in self._admins.values():
            admin.close()
        self._admins.clear()


def topics_of(view: ConfigView) -> dict[str, list[str]]:
    """Topics with two sides, by the cluster of the one in Kafka."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in view.names_with(TopicDefinition.kind, KAFKA_HOME.encode()):
        topic = view.topic(name)
        if topic is not None and topic.secondary:
            cluster = kafka_cluster_of(topic.home) or kafka_cluster_of(topic.secondary)
            if cluster is not None:
                found[cluster].append(name)
    return dict(found)

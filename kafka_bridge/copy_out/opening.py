"""Makes the copies to Kafka of a bridge: their reads of the engine, and the producers that those of a cluster share."""

from collections.abc import Callable

from common.config.definitions import CopyOutDefinition, KafkaClusterDefinition
from common.config.view import ConfigView
from common.names import stored_name
from common.placement import Placement, topic_hash
from engine.link.errors import LinkError
from kafka_bridge.connecting import Connections, FollowedConnection, connection_of, driver_of
from kafka_bridge.copy_in.engine_queues import Connect, Groups
from kafka_bridge.copy_out.copier import OutCopier
from kafka_bridge.copy_out.engine_reads import EngineReads, QueueLink
from kafka_bridge.copy_out.looks import EngineLooks
from kafka_bridge.copy_out.turns import CopyTurns


class CopierMaker:
    """Makes copiers whose reads follow the topic's queues and the broker groups. For one thread.

    Args:
        groups: the broker groups as they are now.
        connect: makes a link to a broker group.
        connections: reads the files of a Kafka cluster.
    """

    def __init__(
        self, view: ConfigView, groups: Callable[[], Groups], connect: Connect, connections: Connections = connection_of
    ) -> None:
        self._view, self._groups, self._connect, self._connections = view, groups, connect, connections
        self._turns: list[tuple[KafkaClusterDefinition, CopyTurns]] = []

    def make(self, copy: CopyOutDefinition, cluster: KafkaClusterDefinition) -> OutCopier:
        """Begin a copy. Raises DriverMissing."""
        copier = OutCopier(copy, lambda: self._open(copy.name, copy.plan))
        self._turns_of(cluster).add(copier)
        return copier

    def _turns_of(self, cluster: KafkaClusterDefinition) -> CopyTurns:
        self._turns = [(known, turns) for known, turns in self._turns if known == cluster or not turns.is_empty]
        for known, turns in self._turns:
            if known == cluster:
                return turns
        made = CopyTurns(
            cluster.name, driver_of(cluster), lambda: FollowedConnection(cluster, self._connections),
            lambda: EngineLooks(self._view, self._groups, self._connect),
        )  # fmt: skip
        self._turns.append((cluster, made))
        return made

    def _open(self, name: str, plan: str) -> EngineReads:
        """Raises OSError, LinkError: also while topic or brokers are not known."""
        topic, groups = self._view.topic(name), self._groups()
        if topic is None or not groups:
            raise LinkError(f"topic={name}: it has no definition, or no broker group is known")
        placement = Placement([*groups], self._view.placed_topics)
        links: list[QueueLink] = []
        try:
            for home, queues in placement.by_home(topic_hash(topic.name.encode()), topic.queues).items():
                group = placement.names[home]
                link = self._connect(group, groups[group])
                links.append(QueueLink(link, "", queues))
                links[-1] = QueueLink(link, link.hello.log_id, queues, link.hello.epoch)
        except BaseException:
            for each in links:
                each.link.close()
            raise

        def is_current() -> bool:
            now = self._view.topic(name)
            same = now is not None and (now.queues, now.made_ms) == (topic.queues, topic.made_ms)
            return same and self._groups() == groups

        cut = topic.cut if topic.cut is not None and topic.cut.plan == plan else None
        return EngineReads(stored_name(topic.name, topic.made_ms), links, is_current, cut)

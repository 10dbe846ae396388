"""The thread that keeps the bridge a member of one group on Kafka, for one topic, and joins again after every error."""

import logging
from collections.abc import Callable

from common.config.definitions import SharedReadDefinition, TopicDefinition
from common.config.errors import ConfigError
from common.kafka.base import ClusterAdmin, KafkaDriver
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault, KafkaRefusal, LoginRefused, PositionOutOfRange
from kafka_bridge.copy_in.copier import BACKOFF_S, CopyTools, GroupCopier, grow_entry
from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.copy_in.plan import CopyPlan
from kafka_bridge.copy_in.run import ENGINE_FAULTS
from kafka_bridge.shared_read.draining import note_drained
from kafka_bridge.shared_read.run import SharedRun
from kafka_bridge.shared_read.tallies import SharedTallies

log = logging.getLogger("penstock.kafka_bridge")
REJOIN_S = 30.0
"""Pause after what only an operator or the cluster can change: each attempt to join disturbs the group's members."""


class SharedCopier(GroupCopier):
    """Without a claim: any number of bridges share the partitions by the group's rebalances."""

    def __init__(self, plan: CopyPlan, tools: CopyTools) -> None:
        self.tallies = SharedTallies()
        super().__init__(plan, tools)

    def _pause_after(self, fault: Exception) -> float:
        return REJOIN_S if isinstance(fault, KafkaRefusal | LoginRefused | PositionOutOfRange) else BACKOFF_S

    def _grow(self, partitions: int) -> None:
        """The topic's own queues follow, too: after the cut, keys go where Kafka's producers have sent them."""
        store, membership = self._tools.store, self.plan.membership
        grow_entry(store, SharedReadDefinition.kind, self.plan.topic, partitions)
        if membership is not None:
            grow_entry(store, TopicDefinition.kind, membership.message_topic, partitions)

    def _new_run(
        self, driver: KafkaDriver, connection: KafkaConnection, queues: EngineQueues, is_ended: Callable[[], bool]
    ) -> SharedRun:
        return SharedRun(
            self.plan, driver, connection, queues, self._standstills, self._grow, is_ended, self.tallies,
            lambda admin: self._look_at_drain(admin, queues), self._stopping.is_set,
        )  # fmt: skip

    def _look_at_drain(self, admin: ClusterAdmin, queues: EngineQueues) -> None:
        """A fault is left to the next look: the drain is late then, and nothing else."""
        if self.plan.membership is None or not self.plan.membership.keeps_order:
            return
        try:
            if note_drained(self._tools.store, self.plan, admin, queues):
                log.info("topic=%s: Kafka's side is drained: the group reads the engine's", self.plan.topic)
        except (KafkaFault, ConfigError, *ENGINE_FAULTS) as fault:
            log.info("topic=%s: whether Kafka's side is drained is not known: %s", self.plan.topic, fault)

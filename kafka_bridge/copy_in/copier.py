"""Tools that all copiers of a bridge share, and the copier for one group: a thread that begins again after every error."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress

from common.clock import Clock
from common.config.errors import ConfigError, EntryNotFound, VersionConflict
from common.config.store import ConfigStore
from common.kafka.base import KafkaDriver
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault, LoginRefused
from common.limited_log import LimitedLog
from engine.link.errors import LinkError
from kafka_bridge.connecting import Connections, FollowedConnection, connection_of
from kafka_bridge.copy_in.engine_queues import Connect, EngineQueues, Groups
from kafka_bridge.copy_in.plan import CopyPlan
from kafka_bridge.copy_in.run import PartitionsCopy
from kafka_bridge.copy_in.standstills import WHOLE, Standstill, Standstills

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


class GroupCopier(ABC):
    """Begins at once. One thread and one set of clients per copy, as a member of a group on Kafka has a connection of its own."""

    is_claimed = True

    def __init__(self, plan: CopyPlan, tools: CopyTools) -> None:
        self.plan, self._tools = plan, tools
        self._standstills = Standstills(tools.clock)
        self._stopping = threading.Event()
        self._run: PartitionsCopy | None = None
        self._stored = self._skipped = 0
        self._thread = threading.Thread(target=self._keep, name=f"copy {plan.topic}", daemon=True)
        self._thread.start()

    @property
    def stored(self) -> int:
        """Records stored since the bridge began to copy the topic."""
        run = self._run
        return self._stored + (run.stored if run else 0)

    @property
    def skipped(self) -> int:
        """Records left out since then, because they come from the topic itself."""
        run = self._run
        return self._skipped + (run.skipped if run else 0)

    @property
    def standstills(self) -> list[Standstill]:
        """A sentence about all that is not copied now; empty also while another bridge has the copy."""
        return self._standstills.all

    def stop(self) -> None:
        """End soon; see `join`."""
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; False: it has not ended in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self._try())

    def _try(self) -> float:
        """Copy until an error or the end; returns the pause before the next try."""
        try:
            self._copy()
            return 0.0
        except (KafkaFault, ConfigError, LinkError, OSError) as fault:
            if self._standstills.note(WHOLE, str(fault)):
                limited.warning("topic=%s: the copy stands still: %s", self.plan.topic, fault)
            return self._pause_after(fault)
        except Exception as fault:
            limited.exception("topic=%s: internal error while copying", self.plan.topic)
            self._standstills.note(WHOLE, f"internal error: {fault}")
            return LOGIN_BACKOFF_S

    def _pause_after(self, fault: Exception) -> float:
        return LOGIN_BACKOFF_S if isinstance(fault, LoginRefused) else BACKOFF_S

    def _copy(self) -> None:
        groups = self._tools.groups()
        if not groups:
            raise LinkError("no broker group is known")
        plan, tools = self.plan, self._tools
        kafka = FollowedConnection(plan.cluster, tools.connections)

        def is_ended() -> bool:
            return self._stopping.is_set() or tools.groups() != groups or kafka.is_outdated()

        with closing(EngineQueues(plan.stored, plan.durability, groups, tools.connect, plan.ranges)) as queues:
            driver = tools.drivers(plan.cluster)
            self._run = run = self._new_run(driver, kafka.opened, queues, is_ended)
            try:
                run.run()
            finally:
                self._run = None
                self._stored, self._skipped = self._stored + run.stored, self._skipped + run.skipped
                run.close()

    @abstractmethod
    def _new_run(
        self, driver: KafkaDriver, connection: KafkaConnection, queues: EngineQueues, is_ended: Callable[[], bool]
    ) -> PartitionsCopy: ...


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

"""One run of a copier for one group: from joining the group on Kafka until an error, or its end.

What was fetched is stored, then the offset is committed, in this order and in one thread. So a member that is killed
leaves at most one batch per partition that the engine has and the group's next member reads again.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from common.config.errors import StoreUnavailable
from common.kafka.base import (
    EARLIEST,
    END,
    ClusterAdmin,
    CommitOutcome,
    GroupListener,
    GroupOptions,
    GroupReader,
    KafkaDriver,
    KafkaTopic,
    ReaderOptions,
)
from common.kafka.codes import UNKNOWN_TOPIC_OR_PARTITION
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault, KafkaRefusal
from common.kafka.records import Partition
from common.limited_log import LimitedLog
from common.quoting import quoted
from engine.link.copy import SourceState
from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.copy_in.native import PackTarget
from kafka_bridge.copy_in.plan import CopyPlan, KafkaMembership
from kafka_bridge.copy_in.run import AGAIN_S, ENGINE_FAULTS, LOOK_S
from kafka_bridge.copy_in.standstills import WHOLE, Standstills
from kafka_bridge.shared_read.handing_back import wait_acknowledged
from kafka_bridge.shared_read.partition import SharedPartition
from kafka_bridge.shared_read.read_ahead import FETCH_RECORDS_MAX
from kafka_bridge.shared_read.tallies import SharedTallies
from kafka_bridge.source_identity import source_of

log = logging.getLogger("penstock.kafka_bridge")
limited = LimitedLog(log)
SESSION_S = 10.0
"""A bridge that was killed holds its partitions for so long. Less takes a slow machine for a dead one."""
POLL_S, BUSY_POLL_S = 0.2, 0.02
BACKLOG_S = 0.1
"""Interval at which the engine is asked what the group has acknowledged, while something waits there."""
OTHER_TOPIC = "Kafka had another topic of this name, or has lost records: the group goes on with what is there"


class MembershipLost(KafkaFault):
    """The group has taken the partitions: what was read of them is dropped, and the copier joins again."""


class SharedRun(GroupListener):
    """
    Args:
        plan: with a membership.
        grow: makes the entry have at least so many queues.
        is_ended: asked between two polls.
        is_stopping: whether the bridge stops, which shortens the wait for a group with an order.
        tallies: counted up, over all runs.
        on_look: called once per second; must not raise.
    """

    def __init__(
        self, plan: CopyPlan, driver: KafkaDriver, connection: KafkaConnection, queues: EngineQueues,
        standstills: Standstills, grow: Callable[[int], None], is_ended: Callable[[], bool], tallies: SharedTallies,
        on_look: Callable[[ClusterAdmin], None], is_stopping: Callable[[], bool],
    ) -> None:  # fmt: skip
        assert plan.membership is not None
        self._plan, self._member, self._queues = plan, plan.membership, queues
        self._driver, self._connection, self._standstills = driver, connection, standstills
        self._grow, self._is_ended, self._tallies = grow, is_ended, tallies
        self._on_look, self._is_stopping = on_look, is_stopping
        self._admin = driver.admin(connection)
        self._cluster_id = self._admin.describe().cluster_id
        self._kafka: KafkaTopic | None = None
        self._reader: GroupReader | None = None
        self._parts: dict[int, SharedPartition] = {}
        self._paused: set[int] = set()
        self._looked_s = self._backlog_s = self._again_s = 0.0
        self._stored = self._skipped = 0

    @property
    def stored(self) -> int:
        return self._stored + sum(each.stored for each in [*self._parts.values()])

    @property
    def skipped(self) -> int:
        return self._skipped + sum(each.skipped for each in [*self._parts.values()])

    def run(self) -> None:
        """Copy until `is_ended`. Raises KafkaFault, ConfigError."""
        self._look()
        options = group_options(self._member, self._plan.kafka_topic)
        self._reader = reader = self._driver.group_reader(self._connection, options, self)
        while not self._is_ended():
            for records in reader.poll(POLL_S if self._is_idle else BUSY_POLL_S):
                if (part := self._parts.get(records.partition.number)) is not None:
                    part.take(records)
            if time.monotonic() >= self._looked_s + LOOK_S:
                self._look()
            self._store()
            self._commit(reader, self._parts)
            self._pace(reader)

    def close(self) -> None:
        """Leave the group, and close the clients of Kafka."""
        try:
            if self._reader is not None:
                self._reader.close()
        finally:
            self._admin.close()

    # --- The group's word, in the thread of poll() and close().

    def on_assigned(self, partitions: Collection[Partition]) -> None:
        for each in partitions:
            self._drop([each.number])
            self._parts[each.number] = SharedPartition(each)
        self._tallies.partitions = len(self._parts)

    def on_revoked(self, partitions: Collection[Partition], deadline_s: float) -> None:
        given = {each.number: part for each in partitions if (part := self._parts.get(each.number)) is not None}
        if self._reader is not None:
            with suppress(KafkaFault):  # what is not committed is read again by the next member
                self._commit(self._reader, given)
        self._drop(given)
        if self._member.keeps_order:
            left = wait_acknowledged(self._queues, self._member.group, given, deadline_s, self._is_stopping)
            self._tallies.order_broken += len(left)
            if left:
                limited.warning(
                    "topic=%s: partitions %s are given up before the group has acknowledged what was copied of them",
                    self._plan.topic, left,
                )  # fmt: skip

    def on_lost(self, partitions: Collection[Partition]) -> None:
        self._drop(each.number for each in partitions)
        self._tallies.lost += len(partitions)

    # --- Work.

    @property
    def _is_idle(self) -> bool:
        return all(each.is_idle for each in self._parts.values())

    def _look(self) -> None:
        """Follow the topic in Kafka: its id and its number of partitions."""
        name, before = self._plan.kafka_topic, self._kafka
        found = self._admin.topics([name]).get(name)
        if found is None or (before is not None and found.id != before.id):
            what = "it does not exist there" if found is None else "it was deleted and made again"
            sentence = f'kafka "{self._plan.cluster.name}": topic {quoted(name)}: {what}'
            raise KafkaRefusal(UNKNOWN_TOPIC_OR_PARTITION, sentence)
        if before is None or found.partitions > before.partitions:
            with suppress(StoreUnavailable):
                self._grow(found.partitions)
                self._kafka = found
                for group in self._queues.groups:
                    with suppress(*ENGINE_FAULTS):
                        self._queues.create(group, found.partitions)
        self._kafka = self._kafka or found
        self._on_look(self._admin)
        self._looked_s = time.monotonic()
        self._standstills.clear(WHOLE)

    def _store(self) -> None:
        """Store what waits, as far as there is room."""
        self._see_backlog()
        if time.monotonic() < self._again_s:
            return
        busy = True
        while busy:
            waiting = [number for number, each in self._parts.items() if not each.is_idle and not each.fault]
            busy = False
            for group, queues in self._queues.by_group(waiting).items():
                try:
                    self._begin(group, [each for each in queues if not self._parts[each].is_begun])
                    busy = self._append(group, queues) or busy
                except ENGINE_FAULTS as fault:
                    self._lose(group, queues, fault)
        for number, part in self._parts.items():
            if part.fault:
                self._tell(number, part.fault)

    def _append(self, group: str, queues: list[int]) -> bool:
        """Append one part of each of these queues; returns whether there was any."""
        parts = {queue: part for queue in queues if (part := self._parts[queue].part()) is not None}
        for queue, answer in zip(parts, self._queues.copy(group, [*parts.values()]) if parts else [], strict=True):
            self._parts[queue].settle(answer)
        return bool(parts)

    def _begin(self, group: str, queues: list[int]) -> None:
        """Ask for the state of these queues; where they have no source, or another one, it is accepted."""
        if not queues or self._kafka is None:
            return
        self._queues.create(group, self._kafka.partitions)
        log_id = self._queues.log_id(group)
        for queue, state in self._queues.states(group, queues).items():
            part = self._parts[queue]
            source = source_of(self._cluster_id, self._kafka, queue)
            state = self._accepted(group, part, state)
            name = self._member.message_topic.encode()
            part.begin(source, state, PackTarget(name, self._kafka.id.bytes, queue, log_id, state.topic_id))
            self._standstills.clear(queue)

    def _accepted(self, group: str, part: SharedPartition, state: SourceState) -> SourceState:
        """The state once the partition is the queue's source. The group's position says where it begins.

        A group reads a topic by its name, as all its members on Kafka do: one that was made again is just read on.
        """
        assert self._kafka is not None
        queue, first = part.partition.number, part.first_offset
        source = source_of(self._cluster_id, self._kafka, queue)
        if not state.number:
            return self._queues.begin(
                group, queue, source, max([first, *self._queues.ends_elsewhere(group, queue, source)])
            )
        # After the state: another member may have gone on meanwhile, and would seem to be beyond an earlier end.
        end = self._admin.offsets([part.partition], END)[part.partition]
        if state.source == source and (end is None or end >= state.next):
            return state
        limited.warning("topic=%s queue=%d: %s", self._plan.topic, queue, OTHER_TOPIC)
        return self._queues.accept(group, queue, source, first, state.number, OTHER_TOPIC)

    def _lose(self, group: str, queues: list[int], fault: Exception) -> None:
        """A broker group does not serve these queues now; what was sent may be stored or not."""
        self._again_s = time.monotonic() + AGAIN_S
        for queue in queues:
            self._parts[queue].forget()
            self._tell(queue, f"broker group {group}: {fault}")

    def _tell(self, queue: int, sentence: str) -> None:
        if self._standstills.note(queue, sentence):
            limited.warning("topic=%s queue=%d: the copy stands still: %s", self._plan.topic, queue, sentence)

    def _commit(self, reader: GroupReader, parts: dict[int, SharedPartition]) -> None:
        """Commit what is stored. Raises MembershipLost, KafkaRefusal."""
        wanted = {
            each.partition: at for each in parts.values() if (at := each.position) is not None and at != each.committed
        }
        if not wanted:
            return
        result = reader.commit(wanted)
        if result.outcome is CommitOutcome.FENCED:
            raise MembershipLost(result.sentence)
        if result.outcome is CommitOutcome.COMMITTED:
            for partition, at in wanted.items():
                parts[partition.number].committed = at

    def _see_backlog(self) -> None:
        now_s = time.monotonic()
        if now_s < self._backlog_s + BACKLOG_S:
            return
        wanted = [number for number, each in self._parts.items() if not each.is_idle or each.ahead.messages]
        for group, queues in self._queues.by_group(wanted).items():
            with suppress(*ENGINE_FAULTS):  # the next append tells it
                found = self._queues.lags(group, self._member.group)
                for queue in queues:
                    if queue < len(found):
                        self._parts[queue].ahead.see(found[queue])
        self._backlog_s = now_s

    def _pace(self, reader: GroupReader) -> None:
        """Read on where all is stored and there is room for more."""
        full = {number for number, each in self._parts.items() if not each.is_idle}
        if found := full - self._paused:
            reader.pause([self._parts[each].partition for each in found])
        if found := (self._paused & self._parts.keys()) - full:
            reader.resume([self._parts[each].partition for each in found])
        self._paused = full

    def _drop(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            part = self._parts.pop(number, None)
            if part is not None:
                self._stored, self._skipped = self._stored + part.stored, self._skipped + part.skipped
                self._tallies.repeated += part.repeated
            self._paused.discard(number)
            self._standstills.clear(number)
        self._tallies.partitions = len(self._parts)


def group_options(member: KafkaMembership, kafka_topic: str) -> GroupOptions:
    """How the bridge joins: its records per poll are bounded, as what it reads ahead is."""
    return GroupOptions(
        member.group, (kafka_topic,), ReaderOptions(records_max=FETCH_RECORDS_MAX),
        start=END if member.begins_at_end else EARLIEST, session_s=SESSION_S,
    )  # fmt: skip

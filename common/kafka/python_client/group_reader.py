"""Member of a consumer group over kafka-python, by its listener of coroutines: heartbeats go on while it waits."""

import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from kafka import KafkaConsumer, errors
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.structs import OffsetAndMetadata, TopicPartition

from common.kafka.base import EARLIEST, CommitOutcome, CommitResult, GroupListener, GroupOptions
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault
from common.kafka.membership import COMMIT_S, FENCED_NUMBERS, RelayedGroupReader, check_protocol, heartbeat_ms
from common.kafka.python_client.faults import described, fault_of, translated
from common.kafka.python_client.fetching import PythonFetching
from common.kafka.python_client.mended import mend_joins
from common.kafka.python_client.options import EndedConnections, common_options, opened
from common.kafka.python_client.reader import check_topics, reading_options
from common.kafka.records import Partition, Records

PROTOCOLS = ("classic",)
LOOK_S = 0.005
COMMIT_MS = int(COMMIT_S * 1000)
_FORBIDDEN = (errors.GroupAuthorizationFailedError, errors.TopicAuthorizationFailedError)


class _AwaitingListener(AsyncConsumerRebalanceListener):
    """Called on the library's loop; awaits what the reader's thread does."""

    def __init__(self, reader: "PythonGroupReader") -> None:
        self._reader = reader

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        if assigned:
            await self._reader.wait(self._reader.assigned(_ours(assigned)), self._reader.rebalance_s)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if revoked:
            await self._reader.wait(self._reader.hand_revoked(_ours(revoked)), self._reader.revoke_s)
            self._reader.forget(_ours(revoked))

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        if lost:
            await self._reader.wait(self._reader.hand_lost(_ours(lost)), self._reader.revoke_s)


class PythonGroupReader(RelayedGroupReader):
    def __init__(self, connection: KafkaConnection, options: GroupOptions, listener: GroupListener) -> None:
        check_protocol(connection.name, options, "kafka-python", PROTOCOLS)
        self.revoke_s, self.rebalance_s = options.revoke_s, options.rebalance_s
        settings = {**common_options(connection), **reading_options(options.reading), **_membership_options(options)}
        self._ended = EndedConnections()
        self._client = opened(connection, KafkaConsumer, settings, self._ended)
        try:
            check_topics(connection.name, self._client, options.topics)
        except KafkaFault:
            self._client.close(autocommit=False)
            raise
        # Last of what may fail, because it starts a thread.
        super().__init__(connection.name, options, listener)
        self._fetching = PythonFetching(connection.name, self._client)
        self._unplaced: set[Partition] = set()
        self._client.subscribe(topics=list(options.topics), listener=_AwaitingListener(self))
        mend_joins(self._client)

    async def wait(self, done: threading.Event, wait_s: float) -> None:
        """Let the loop run until the event is set."""
        ends = time.monotonic() + wait_s
        while not done.is_set() and time.monotonic() < ends:
            await self._client._net.sleep(LOOK_S)

    def assigned(self, partitions: list[Partition]) -> threading.Event:
        self._unplaced.update(partitions)
        # The positions are asked for in the reader's thread, because the loop must not wait for itself.
        self._relay.hand(self._place)
        return self.hand_assigned(partitions)

    def forget(self, partitions: Collection[Partition]) -> None:
        super().forget(partitions)
        self._unplaced.difference_update(partitions)
        for each in partitions:
            self._fetching.positions.pop(each, None)

    def _place(self) -> None:
        """Seek in partitions that are new. Raises KafkaFault: not all are placed; the next poll tries again."""
        # After a fault the library may have found the position of one by itself, and gone on from there.
        wanted = [TopicPartition(*each) for each in self._unplaced if each not in self._fetching.positions]
        if not wanted:
            self._unplaced.clear()
            return
        with translated(self._cluster):
            committed = self._client._coordinator.fetch_committed_offsets(wanted, timeout_ms=COMMIT_MS)
            found = {each: offset.offset for each, offset in committed.items()}
            if without := [each for each in wanted if each not in found]:
                ask = self._client.beginning_offsets if self._options.start == EARLIEST else self._client.end_offsets
                found.update(ask(without, timeout_ms=COMMIT_MS))
            for each, offset in found.items():
                self._client.seek(each, offset)
                self._fetching.positions[Partition(*each)] = offset
        self._unplaced.clear()
        self.keep_ends({Partition(*each): found[each] for each in without})

    def _fetch(self, wait_s: float) -> list[Records]:
        self._place()
        return self._fetching.poll(wait_s)

    def _commit(self, positions: Mapping[Partition, int], notes: Mapping[Partition, str]) -> CommitResult:
        offsets = {
            TopicPartition(*each): OffsetAndMetadata(at, notes.get(each, ""), -1) for each, at in positions.items()
        }
        try:
            self._client.commit(offsets, timeout_ms=COMMIT_MS)
        except _FORBIDDEN as fault:
            raise fault_of(self._cluster, fault) from fault
        except errors.KafkaError as fault:
            sentence = f'kafka "{self._cluster}": group {self._options.group}: {described(fault)}'
            return CommitResult(_outcome(fault), sentence)
        return CommitResult(CommitOutcome.COMMITTED)

    def pause(self, partitions: Collection[Partition]) -> None:
        self._client.pause(*(TopicPartition(*each) for each in partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        self._client.resume(*(TopicPartition(*each) for each in partitions))

    def rewind(self, positions: Mapping[Partition, int]) -> None:
        for each, at in positions.items():
            self._client.seek(TopicPartition(*each), at)
        self._fetching.positions.update(positions)

    def positions(self) -> dict[Partition, int]:
        return dict(self._fetching.positions)

    @property
    def interruptions(self) -> int:
        return self._ended.count

    def _leave(self) -> None:
        with translated(self._cluster):
            self._client.close(autocommit=False)


def _ours(partitions: Collection[TopicPartition]) -> list[Partition]:
    return sorted(Partition(each.topic, each.partition) for each in partitions)


def _outcome(fault: errors.KafkaError) -> CommitOutcome:
    cause = fault.args[0] if isinstance(fault, errors.CommitFailedError) and fault.args else fault
    if isinstance(cause, errors.BrokerResponseError):
        return CommitOutcome.FENCED if cause.errno in FENCED_NUMBERS else CommitOutcome.UNKNOWN
    # Without an answer of a broker: the library knows that it has fallen out of the group.
    return CommitOutcome.FENCED if isinstance(fault, errors.CommitFailedError) else CommitOutcome.UNKNOWN


def _membership_options(options: GroupOptions) -> dict[str, Any]:
    return {
        "group_id": options.group,
        "session_timeout_ms": int(options.session_s * 1000),
        "heartbeat_interval_ms": heartbeat_ms(options),
        "max_poll_interval_ms": int(options.rebalance_s * 1000),
        "partition_assignment_strategy": [RangePartitionAssignor, RoundRobinPartitionAssignor],
    }

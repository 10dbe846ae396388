"""Member of a consumer group over librdkafka, which calls back for a rebalance inside poll() and close()."""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from common.kafka.base import EARLIEST, CommitOutcome, CommitResult, GroupListener, GroupOptions
from common.kafka.codes import TOPIC_AUTHORIZATION_FAILED
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault
from common.kafka.librdkafka.faults import described, fault_of, translated
from common.kafka.librdkafka.fetching import LibrdkafkaFetching
from common.kafka.librdkafka.options import common_options, opened
from common.kafka.librdkafka.reader import check_topics, reading_options
from common.kafka.membership import COMMIT_S, FENCED_NUMBERS, RelayedGroupReader, check_protocol, heartbeat_ms
from common.kafka.records import Partition, Records

PROTOCOLS = ("classic", "consumer")
PLACING_S, PLACING_PAUSE_S = 30.0, 0.2
"""For how long the positions of new partitions are asked for: a coordinator that moves does not answer at once."""
POLL_S, LEAVE_S = 0.1, 5.0
_FENCED = (*FENCED_NUMBERS, KafkaError._ASSIGNMENT_LOST, KafkaError._FENCED)
_FORBIDDEN = (TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


class LibrdkafkaGroupReader(RelayedGroupReader):
    def __init__(self, connection: KafkaConnection, options: GroupOptions, listener: GroupListener) -> None:
        check_protocol(connection.name, options, "confluent-kafka", PROTOCOLS)
        self._is_incremental = options.protocol == "consumer"
        settings = {**common_options(connection), **reading_options(options.reading), **_membership_options(options)}
        self._client, self._last = opened(connection, Consumer, settings, lambda client: client.poll(0))
        try:
            check_topics(connection.name, self._client, options.topics)
        except KafkaFault:
            self._client.close()
            raise
        # Last of what may fail, because it starts a thread.
        super().__init__(connection.name, options, listener)
        self._fetching = LibrdkafkaFetching(connection.name, self._client, options.reading.records_max)
        self._placing_fault: KafkaFault | None = None
        self._without: list[Partition] = []
        # While close() runs the client refuses all calls: an exception in a callback would stop it for ever.
        self._member, self._is_closing = "", False
        self._client.subscribe(
            list(options.topics),
            on_assign=self._told(self._assigned), on_revoke=self._told(self._revoked), on_lost=self._told(self._lost),
        )  # fmt: skip

    @staticmethod
    def _told(call: Callable[[list[Partition]], None]) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, found: call([Partition(each.topic, each.partition) for each in found])

    def _assigned(self, partitions: list[Partition]) -> None:
        if self._is_closing:
            return
        positions = self._placed(partitions)
        places = [TopicPartition(*each, at) for each, at in positions.items()]
        if self._is_incremental:
            self._client.incremental_assign(places)
        else:
            self._client.assign(places)
        # A dictionary of its own: LibrdkafkaFetching sees by it that partitions have changed.
        self._fetching.positions = {**self._fetching.positions, **positions}
        self._member = self._client.memberid()
        self.keep_ends({each: positions[each] for each in self._without if each in positions})
        if positions:
            self._relay.wait(self.hand_assigned(list(positions)), self._options.rebalance_s)

    def _revoked(self, partitions: list[Partition]) -> None:
        if self._is_closing:
            return self._lost(partitions)
        if partitions and self._client.memberid() != self._member:
            return self._lost(partitions)  # the library does not say so where it had asked for them before
        if partitions:
            self._relay.wait(self.hand_revoked(partitions), self._options.revoke_s)
        self._give_up(partitions)
        return None

    def _lost(self, partitions: list[Partition]) -> None:
        if partitions:
            self._relay.wait(self.hand_lost(partitions), self._options.revoke_s)
        self._give_up(partitions)

    def _give_up(self, partitions: list[Partition]) -> None:
        self.forget(partitions)
        given = set(partitions)
        self._fetching.positions = {each: at for each, at in self._fetching.positions.items() if each not in given}
        if self._is_closing:
            return
        if self._is_incremental:
            self._client.incremental_unassign([TopicPartition(*each) for each in partitions])
        else:
            self._client.unassign()

    def _placed(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Positions to begin at. Empty, and a fault for the next poll, where the cluster does not tell them."""
        ends = time.monotonic() + min(PLACING_S, self._options.rebalance_s / 2)
        while True:
            self._without = []
            try:
                with translated(self._cluster):
                    found = self._client.committed([TopicPartition(*each) for each in partitions], COMMIT_S)
                    return {Partition(each.topic, each.partition): self._position(each) for each in found}
            except KafkaFault as fault:
                if time.monotonic() > ends:
                    self._placing_fault = fault
                    return {}
                time.sleep(PLACING_PAUSE_S)

    def _position(self, found: TopicPartition) -> int:
        if found.error is not None:
            raise fault_of(self._cluster, found.error, f"{found.topic} {found.partition}: ")
        if found.offset >= 0:
            return int(found.offset)
        self._without.append(Partition(found.topic, found.partition))
        first, end = self._client.get_watermark_offsets(TopicPartition(found.topic, found.partition), COMMIT_S)
        return int(first if self._options.start == EARLIEST else end)

    def _fetch(self, wait_s: float) -> list[Records]:
        if self._placing_fault is not None:
            fault, self._placing_fault = self._placing_fault, None
            raise fault
        return self._fetching.poll(wait_s)

    def _commit(self, positions: Mapping[Partition, int], notes: Mapping[Partition, str]) -> CommitResult:
        name = f'kafka "{self._cluster}": group {self._options.group}'
        if self._relay.inside(self._client.memberid) != self._member:
            return CommitResult(CommitOutcome.FENCED, f"{name}: this reader is no longer the member that it was")
        offsets = [TopicPartition(*each, at, notes.get(each, "")) for each, at in positions.items()]
        try:
            answered: Any = self._relay.inside(partial(self._client.commit, offsets=offsets, asynchronous=False))
            error = next((each.error for each in answered if each.error is not None), None)
        except KafkaException as fault:
            error = fault.args[0]
        if error is None:
            return CommitResult(CommitOutcome.COMMITTED)
        if error.code() in _FORBIDDEN:
            raise fault_of(self._cluster, error)
        outcome = CommitOutcome.FENCED if error.code() in _FENCED else CommitOutcome.UNKNOWN
        return CommitResult(outcome, f"{name}: {described(error)}")

    def pause(self, partitions: Collection[Partition]) -> None:
        self._relay.inside(partial(self._client.pause, [TopicPartition(*each) for each in partitions]))

    def resume(self, partitions: Collection[Partition]) -> None:
        self._relay.inside(partial(self._client.resume, [TopicPartition(*each) for each in partitions]))

    def rewind(self, positions: Mapping[Partition, int]) -> None:
        with translated(self._cluster):
            for each, at in positions.items():
                self._relay.inside(partial(self._client.seek, TopicPartition(*each, at)))
        self._fetching.positions.update(positions)

    def positions(self) -> dict[Partition, int]:
        return dict(self._fetching.positions)

    @property
    def interruptions(self) -> int:
        return self._last.interruptions

    def _leave(self) -> None:
        # By unsubscribe(), because no commit is possible any more once close() has begun.
        self._client.unsubscribe()
        ends = time.monotonic() + LEAVE_S
        while self._fetching.positions and time.monotonic() < ends:
            self._client.poll(POLL_S)
        self._is_closing = True
        self._client.close()


def _membership_options(options: GroupOptions) -> dict[str, Any]:
    shared = {
        "group.id": options.group,
        "group.protocol": options.protocol,
        "max.poll.interval.ms": int(options.rebalance_s * 1000),
        "socket.timeout.ms": int(COMMIT_S * 1000),
    }
    if options.protocol == "consumer":
        return shared
    return {
        **shared,
        "session.timeout.ms": int(options.session_s * 1000),
        "heartbeat.interval.ms": heartbeat_ms(options),
        "partition.assignment.strategy": "range,roundrobin",
    }

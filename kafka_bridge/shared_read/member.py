"""The bridge as a member of one group on Kafka, for all topics of the group: from joining until an error, or other topics.

What was fetched is stored, then the offset is committed, in this order and in one thread. So a member that is killed
leaves at most one batch per partition that the engine has and the group's next member reads again.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from common.config.errors import ConfigError
from common.kafka.base import (
    EARLIEST,
    END,
    ClusterAdmin,
    CommitOutcome,
    GroupListener,
    GroupOptions,
    GroupReader,
    KafkaDriver,
    ReaderOptions,
)
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault, KafkaRefusal, PositionOutOfRange
from common.kafka.records import Partition
from common.quoting import quoted
from kafka_bridge.copy_in.plan import KafkaMembership
from kafka_bridge.copy_in.run import LOOK_S
from kafka_bridge.copy_in.session import LOOK_TOPICS, check_cluster
from kafka_bridge.shared_read.handing_back import wait_acknowledged
from kafka_bridge.shared_read.read_ahead import FETCH_RECORDS_MAX
from kafka_bridge.shared_read.run import SharedRun
from kafka_bridge.shared_read.tails import PutBackBelow, ReadAgain

SESSION_S = 10.0
"""A bridge that was killed holds its partitions for so long. Less takes a slow machine for a dead one."""
POLL_S, BUSY_POLL_S = 0.5, 0.02
WAIT_S, WAIT_TOPICS, WAIT_S_MAX = 0.1, 100, 1.0
"""How long a broker holds a request that finds no record, by hundreds of topics: librdkafka names all partitions in each one.
More delays the next records of a partition that was paused, as each is until what was fetched is stored."""


class MembershipLost(KafkaFault):
    """The group has taken the partitions: what was read of them is dropped, and the copier joins again."""


class TopicFault(Exception):
    """Nothing of one topic can be read: the member goes on without it. Attributes: topic: of Kafka; fault: why."""

    def __init__(self, topic: str, fault: Exception) -> None:
        super().__init__(str(fault))
        self.topic, self.fault = topic, fault


class GroupMember(GroupListener):
    """
    Args:
        admin: owned by the caller.
        runs: by topic of Kafka; one at least, all of the same group.
        is_ended: asked between two polls.
        is_stopping: whether the topic of Kafka ends, which shortens the wait for a group with an order.
        on_look: called once per second and topic; must not raise.
    """

    def __init__(
        self, driver: KafkaDriver, connection: KafkaConnection, admin: ClusterAdmin, runs: Mapping[str, SharedRun],
        is_ended: Callable[[], bool], is_stopping: Callable[[], bool], on_look: Callable[[SharedRun], None],
    ) -> None:  # fmt: skip
        self._driver, self._connection, self._admin, self._runs = driver, connection, admin, runs
        self._is_ended, self._is_stopping, self._on_look = is_ended, is_stopping, on_look
        self._reader: GroupReader | None = None
        self._busy: set[str] = set()
        self._looked_s, self._interruptions = 0.0, 0

    def run(self) -> None:
        """Copy until `is_ended`. Raises TopicFault, KafkaFault, ConfigError."""
        self._look()
        options = group_options(next(iter(self._runs.values())).member, [*self._runs])
        self._reader = reader = self._driver.group_reader(self._connection, options, self)
        self._interruptions = reader.interruptions
        while not self._is_ended():
            self._fetch(reader)
            if time.monotonic() >= self._looked_s + LOOK_S * max(1.0, len(self._runs) / LOOK_TOPICS):
                self._look()
            self._work(reader)

    def close(self) -> None:
        """Leave the group."""
        if self._reader is not None:
            self._reader.close()

    # --- The group's word, in the thread of poll() and close().

    def on_assigned(self, partitions: Collection[Partition]) -> None:
        for topic, given in _by_topic(partitions).items():
            if (run := self._runs.get(topic)) is not None:
                run.give(given)

    def on_revoked(self, partitions: Collection[Partition], deadline_s: float) -> None:
        if self._reader is not None:
            with suppress(KafkaFault):  # what is not committed is read again by the next member
                self._commit(self._reader, partitions)
        asked = []
        for topic, given in _by_topic(partitions).items():
            if (run := self._runs.get(topic)) is not None:
                numbers = run.take_away(given)
                asked += [(run, numbers)] if run.member.keeps_order else []
        waits = [(run.queues, run.member.group, numbers) for run, numbers in asked]
        for (run, _), left in zip(asked, wait_acknowledged(waits, deadline_s, self._is_stopping), strict=True):
            run.note_unacknowledged(left)

    def on_lost(self, partitions: Collection[Partition]) -> None:
        for topic, given in _by_topic(partitions).items():
            if (run := self._runs.get(topic)) is not None:
                run.lose(given)

    # --- Work.

    def _fetch(self, reader: GroupReader) -> None:
        """Take what has come."""
        is_idle = all(self._runs[each].is_idle for each in self._busy)
        try:
            fetched = reader.poll(POLL_S if is_idle else BUSY_POLL_S)
        except PositionOutOfRange as fault:
            raise TopicFault(fault.partition.topic, fault) from fault
        except KafkaRefusal as fault:
            if fault.topic in self._runs:
                raise TopicFault(fault.topic, fault) from fault
            raise
        if reader.interruptions != self._interruptions:
            check_cluster(self._admin, next(iter(self._runs.values())).cluster_id)
            self._interruptions = reader.interruptions
            own = reader.positions()
            again = {each.partition: each.offsets[0] for each in fetched if each.offsets and each.partition in own}
            for each in self._runs.values():
                again |= each.interrupt()
            reader.rewind(again)
            fetched = []  # some of it may be of before, and some of behind
        for records in fetched:
            if (run := self._runs.get(records.partition.topic)) is not None:
                run.take(records)
                self._busy.add(records.partition.topic)

    def _look(self) -> None:
        """Follow the topics in Kafka, by one question."""
        found = self._admin.topics([*self._runs])
        for name, run in self._runs.items():
            try:
                run.see(found.get(name))
            except (KafkaRefusal, ConfigError) as fault:
                raise TopicFault(name, fault) from fault
            self._on_look(run)
        self._looked_s = time.monotonic()

    def _work(self, reader: GroupReader) -> None:
        """Store what was fetched, as far as there is room; commit what is stored; read on where all is."""
        for name in self._busy:
            self._store(reader, name)
        self._commit(reader)
        pauses: list[Partition] = []
        resumes: list[Partition] = []
        for name in [*self._busy]:
            to_pause, to_resume = self._runs[name].pace()
            pauses += to_pause
            resumes += to_resume
            if not self._runs[name].is_active:
                self._busy.discard(name)
        if pauses:
            reader.pause(pauses)
        if resumes:
            reader.resume(resumes)

    def _store(self, reader: GroupReader, topic: str) -> None:
        run = self._runs[topic]
        try:
            run.store()
        except ReadAgain as lost:
            reader.commit(lost.positions)
            raise MembershipLost(f"topic {quoted(topic)}: {lost}") from lost
        except PutBackBelow as fault:
            if run.is_interrupted:  # the group's position may have gone back, too: that of before is not used any more
                raise MembershipLost(str(fault)) from fault
            raise TopicFault(topic, fault) from fault
        except KafkaRefusal as fault:
            raise TopicFault(topic, fault) from fault

    def _commit(self, reader: GroupReader, partitions: Collection[Partition] | None = None) -> None:
        """Commit what is stored, of these partitions or of all. Raises MembershipLost, KafkaRefusal."""
        wanted = {each: at for name in self._busy for each, at in self._runs[name].positions(partitions).items()}
        if not wanted:
            return
        notes = {
            each: note for name in self._busy
            for each, note in self._runs[name].notes([each for each in wanted if each.topic == name]).items()
        }  # fmt: skip
        result = reader.commit(wanted, notes)
        if result.outcome is CommitOutcome.FENCED:
            raise MembershipLost(result.sentence)
        if result.outcome is CommitOutcome.COMMITTED:
            for partition, at in wanted.items():
                self._runs[partition.topic].note_committed(partition, at)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    found: dict[str, list[Partition]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return found


def group_options(member: KafkaMembership, kafka_topics: Collection[str]) -> GroupOptions:
    """How the bridge joins: its records per poll are bounded, as what it reads ahead is."""
    wait_s = min(WAIT_S_MAX, WAIT_S * max(1.0, len(kafka_topics) / WAIT_TOPICS))
    return GroupOptions(
        member.group, tuple(kafka_topics), ReaderOptions(records_max=FETCH_RECORDS_MAX, wait_s=wait_s),
        start=END if member.begins_at_end else EARLIEST, session_s=SESSION_S,
    )  # fmt: skip

"""One run of a copier: reads the partitions of a Kafka topic and appends their records to the queues of its topic.

It ends with an error of the whole topic, after which the copier begins another run. An error of one partition, or of one
broker group, leaves the others as they are.
"""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from common.config.errors import StoreUnavailable
from common.kafka.base import EARLIEST, END, ClusterAdmin, KafkaDriver, KafkaTopic, PartitionReader, ReaderOptions
from common.kafka.codes import UNKNOWN_TOPIC_OR_PARTITION
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaRefusal, PositionOutOfRange
from common.kafka.records import Partition
from common.limited_log import LimitedLog
from common.quoting import quoted
from engine.client.admin import AdminError
from engine.link.copy import ForeignSource, SourceState
from engine.link.errors import LinkError
from kafka_bridge.copy_in.core import After, Begin, Continue, Halt, PartitionBounds, PartitionCopy, first_step
from kafka_bridge.copy_in.engine_queues import PASSED_REASON, EngineQueues
from kafka_bridge.copy_in.native import PackTarget
from kafka_bridge.copy_in.plan import CopyPlan
from kafka_bridge.copy_in.standstills import WHOLE, Standstills
from kafka_bridge.source_identity import source_of

log = logging.getLogger("penstock.kafka_bridge")
limited = LimitedLog(log)
POLL_S = 0.2
ROUND_S, FULL_RECORDS = 0.02, 5_000
"""A poll that returned fewer records is followed by the next one after so long. A round of fetch and append costs some 2 ms
of CPU here and at the broker, however few records it has; and they come no sooner at a consumer by more of them."""
AGAIN_S = 1.0
"""Interval at which partitions that stand still are tried again, or looked at for an operator's word."""
LOOK_S = 1.0
"""Interval at which Kafka is asked for the topic: it may have more partitions, or be another one. What was fetched is
appended after the question, so records of a topic that was made again could pass for those of the old one for so long."""
PASS_S = 60.0
"""Interval at which positions are moved over what Kafka has deleted and held nothing to copy. Retention works in minutes."""
ENGINE_FAULTS = (AdminError, LinkError, OSError)


class PartitionsCopy(Protocol):
    """A run of a copier."""

    @property
    def stored(self) -> int: ...

    @property
    def skipped(self) -> int: ...

    def run(self) -> None: ...

    def close(self) -> None: ...


class CopyRun:
    """
    Args:
        grow: makes the topic's definition have at least so many queues.
        is_ended: asked between two polls.
    """

    def __init__(
        self, plan: CopyPlan, driver: KafkaDriver, connection: KafkaConnection, queues: EngineQueues,
        standstills: Standstills, grow: Callable[[int], None], is_ended: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._plan, self._driver, self._connection, self._queues = plan, driver, connection, queues
        self._standstills, self._grow, self._is_ended = standstills, grow, is_ended
        self._admin: ClusterAdmin = driver.admin(connection)
        self._cluster_id = self._admin.describe().cluster_id
        self._reader: PartitionReader | None = None
        self._kafka: KafkaTopic | None = None
        self._looked_s, self._passed_s, self._grown = 0.0, 0.0, 0
        self._copies: dict[int, PartitionCopy] = {}
        self._halted: dict[int, tuple[int, int]] = {}  # (number, next) of the queue's source
        self._away: set[int] = set()
        self._stored = self._skipped = 0

    @property
    def stored(self) -> int:
        """Records that this run has stored."""
        return self._stored + sum(each.stored for each in [*self._copies.values()])

    @property
    def skipped(self) -> int:
        """Records that this run has left out, because they come from the topic itself."""
        return self._skipped + sum(each.skipped for each in [*self._copies.values()])

    def run(self) -> None:
        """Copy until `is_ended`. Raises KafkaFault, ConfigError."""
        self._look()
        again_at = 0.0
        while not self._is_ended():
            if time.monotonic() >= again_at:
                self._try_again()
                again_at = time.monotonic() + AGAIN_S
            self._copy()

    def close(self) -> None:
        """Close the clients of Kafka."""
        self._close_reader()
        self._admin.close()

    def _look(self) -> None:
        """Follow the topic in Kafka: its id and its number of partitions."""
        name, before = self._plan.kafka_topic, self._kafka
        found = self._admin.topics([name]).get(name)
        if found is None:
            sentence = f'kafka "{self._plan.cluster.name}": topic {quoted(name)}: it does not exist there'
            raise KafkaRefusal(UNKNOWN_TOPIC_OR_PARTITION, sentence)
        if found.partitions > self._grown:
            with suppress(StoreUnavailable):  # the next look tries again
                self._grow(found.partitions)
                self._grown = found.partitions
        self._kafka = found
        if before is None or found.id != before.id:
            self._forget_beyond(found.partitions)
            self._begin(range(found.partitions))
        elif found.partitions > before.partitions:
            self._begin(range(before.partitions, found.partitions))
        self._looked_s = time.monotonic()
        self._standstills.clear(WHOLE)

    def _forget_beyond(self, partitions: int) -> None:
        """Drop the partitions that a topic which was made again has no more."""
        for each in {*self._copies, *self._halted, *self._away}:
            if each >= partitions:
                self._drop(each)
                self._halted.pop(each, None)
                self._away.discard(each)
                self._standstills.clear(each)

    def _try_again(self) -> None:
        """Begin again what a broker group or an operator may serve now."""
        again = set(self._away)
        for group, queues in self._queues.by_group(self._halted).items():
            with suppress(*ENGINE_FAULTS):
                states = self._queues.states(group, queues)
                again |= {queue for queue in queues if _place(states[queue]) != self._halted[queue]}
        if again:
            self._begin(sorted(again))

    def _begin(self, partitions: Iterable[int]) -> None:
        """Ask for the state of these partitions' queues, and read all that can be copied from there on."""
        wanted = [*partitions]
        for each in wanted:
            self._drop(each)
            self._halted.pop(each, None)
        for group, queues in self._queues.by_group(wanted).items():
            try:
                self._begin_at(group, queues)
            except ENGINE_FAULTS as fault:
                self._lose(
                    group, [each for each in queues if each not in self._copies and each not in self._halted], fault
                )
        self._open_reader()

    def _bounds(self, partitions: Iterable[int]) -> dict[int, PartitionBounds]:
        asked = [self._partition(each) for each in partitions]
        starts, ends = self._admin.offsets(asked, EARLIEST), self._admin.offsets(asked, END)
        return {each.number: PartitionBounds(starts[each] or 0, ends[each] or 0) for each in asked}

    def _begin_at(self, group: str, queues: list[int]) -> None:
        assert self._kafka is not None
        self._queues.create(group, self._kafka.partitions)
        log_id = self._queues.log_id(group)
        states = self._queues.states(group, queues)
        # After the states: another copier may go on meanwhile, and would seem to be beyond an earlier end.
        bounds = self._bounds(queues)
        for queue, state in states.items():
            source, partition = self._source(queue), self._partition(queue)
            step = first_step(self._plan.topic, partition, state, source, bounds[queue], self._first_offset(queue))
            if isinstance(step, Begin):
                start = max([step.start, *self._queues.ends_elsewhere(group, queue, source)])
                state = self._queues.begin(group, queue, source, start)
                log.info("topic=%s queue=%d: the copy begins at offset %d", self._plan.topic, queue, start)
                step = Continue(state.next)
            if isinstance(step, Halt):
                self._halt(queue, _place(state), step.sentence)
                continue
            name = self._plan.topic.encode()
            target = PackTarget(name, self._kafka.id.bytes, queue, log_id, state.topic_id)
            self._copies[queue] = PartitionCopy(partition, source, state, target)
            self._away.discard(queue)
            self._standstills.clear(queue)

    def _first_offset(self, partition: int) -> int:
        offsets = self._plan.first_offsets
        return offsets[partition] if partition < len(offsets) else 0

    def _partition(self, number: int) -> Partition:
        return Partition(self._plan.kafka_topic, number)

    def _source(self, partition: int) -> ForeignSource:
        assert self._kafka is not None
        return source_of(self._cluster_id, self._kafka, partition)

    def _copy(self) -> None:
        """Read what has come, and append all of it."""
        if self._reader is None:
            time.sleep(POLL_S)
            self._look_if_due()
            return
        try:
            fetched = self._reader.poll(POLL_S)
        except PositionOutOfRange as fault:
            self._look()  # the topic may be another one
            if fault.partition.number in self._copies:
                self._begin([fault.partition.number])
            return
        polled_s = time.monotonic()
        for records in fetched:
            if (copy := self._copies.get(records.partition.number)) is not None:
                copy.take(records)
        self._look_if_due()
        while sum(self._append(group, queues) for group, queues in self._waiting().items()):
            pass
        self._halt_faulty()
        if time.monotonic() >= self._passed_s + PASS_S:
            self._pass_over_deleted()
            self._passed_s = time.monotonic()
        if 0 < sum(len(records.offsets) for records in fetched) < FULL_RECORDS:
            time.sleep(max(0.0, polled_s + ROUND_S - time.monotonic()))

    def _look_if_due(self) -> None:
        if time.monotonic() >= self._looked_s + LOOK_S:
            self._look()

    def _waiting(self) -> dict[str, list[int]]:
        return self._queues.by_group(number for number, copy in self._copies.items() if not copy.is_idle)

    def _append(self, group: str, queues: list[int]) -> bool:
        """Append one part of each of these queues; returns whether there was any."""
        parts = {queue: part for queue in queues if (part := self._copies[queue].part()) is not None}
        if not parts:
            return False
        try:
            answers = self._queues.copy(group, [*parts.values()])
        except ENGINE_FAULTS as fault:
            self._lose(group, [*parts], fault)
            return False
        again = [
            queue
            for queue, answer in zip(parts, answers, strict=True)
            if self._copies[queue].settle(answer) is After.ASK
        ]
        if again:
            limited.info("topic=%s: queues %s expect another offset: asking", self._plan.topic, again)
            self._begin(again)
        return True

    def _pass_over_deleted(self) -> None:
        """Move the engine's positions over records that Kafka has deleted and that this run read in vain.

        Only copied records move them, and not control records, aborted ones and the topic's own. The next start would
        take what is deleted for lost.
        """
        passed = [number for number, copy in self._copies.items() if copy.has_passed]
        starts = {number: bounds.start for number, bounds in self._bounds(passed).items()} if passed else {}
        deleted = [
            number for number in passed if self._copies[number].next < starts[number] <= self._copies[number].position
        ]
        for group, queues in self._queues.by_group(deleted).items():
            for queue in queues:
                copy = self._copies[queue]
                try:
                    state = self._queues.accept(
                        group, queue, self._source(queue), copy.position, copy.number, PASSED_REASON, copy.next
                    )
                except ENGINE_FAULTS as fault:
                    self._lose(group, [queue], fault)
                else:
                    log.info(
                        "topic=%s queue=%d: passed over deleted records, up to %d", self._plan.topic, queue, state.next
                    )
                    copy.pass_over(state)

    def _lose(self, group: str, queues: list[int], fault: Exception) -> None:
        """A broker group does not serve these queues now; what was sent may be stored or not."""
        for queue in queues:
            self._drop(queue)
            self._away.add(queue)
            self._tell(queue, f"broker group {group}: {fault}")

    def _halt_faulty(self) -> None:
        for queue, copy in [*self._copies.items()]:
            if copy.fault:
                self._halt(queue, (copy.number, copy.next), copy.fault)

    def _halt(self, queue: int, place: tuple[int, int], sentence: str) -> None:
        self._drop(queue)
        self._away.discard(queue)
        self._halted[queue] = place
        self._tell(queue, sentence)

    def _drop(self, queue: int) -> None:
        copy = self._copies.pop(queue, None)
        if copy is not None:
            self._stored, self._skipped = self._stored + copy.stored, self._skipped + copy.skipped
            if self._reader is not None:
                self._reader.pause([copy.partition])

    def _tell(self, queue: int, sentence: str) -> None:
        if self._standstills.note(queue, sentence):
            limited.warning("topic=%s queue=%d: the copy stands still: %s", self._plan.topic, queue, sentence)

    def _open_reader(self) -> None:
        """Read all partitions that are copied, from their positions. A new reader has nothing of earlier positions."""
        self._close_reader()
        positions = {copy.partition: copy.position for copy in self._copies.values()}
        if positions:
            self._reader = self._driver.reader(self._connection, ReaderOptions())
            self._reader.assign(positions)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None


def _place(state: SourceState) -> tuple[int, int]:
    return state.number, state.next

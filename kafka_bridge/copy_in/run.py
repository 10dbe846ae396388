"""One run of a topic's copy: what of its partitions is copied, what stands still, and which records come next.

It has no clients of its own: `session.py` asks Kafka, reads and appends for all topics of a cluster together. An error of
one partition, or of one broker group, leaves the others as they are.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from common.config.errors import StoreUnavailable
from common.kafka.base import KafkaTopic
from common.kafka.codes import UNKNOWN_TOPIC_OR_PARTITION
from common.kafka.errors import KafkaRefusal
from common.kafka.records import Partition, Records
from common.limited_log import LimitedLog
from common.quoting import quoted
from engine.client.admin import AdminError
from engine.link.copy import Copied, CopyPart, ForeignSource, SourceState
from engine.link.errors import LinkError
from kafka_bridge.copy_in.core import After, Begin, Continue, Halt, PartitionBounds, PartitionCopy, first_step
from kafka_bridge.copy_in.engine_queues import PASSED_REASON, EngineQueues
from kafka_bridge.copy_in.native import PackTarget
from kafka_bridge.copy_in.plan import CopyPlan
from kafka_bridge.copy_in.standstills import WHOLE, Standstills
from kafka_bridge.source_identity import source_of

log = logging.getLogger("penstock.kafka_bridge")
limited = LimitedLog(log)
AGAIN_S = 1.0
"""Interval at which partitions that stand still are tried again, or looked at for an operator's word."""
LOOK_S = 1.0
"""Greatest age of Kafka's answer about a topic when records of it are appended: it may be another topic since. Records of
one that was made again could pass for those of the old one for so long."""
ENGINE_FAULTS = (AdminError, LinkError, OSError)

Bounds = Callable[[Collection[Partition]], Mapping[Partition, PartitionBounds]]
"""Asks Kafka for bounds of partitions. Raises KafkaFault."""


class TopicRun:
    """
    Args:
        queues: of the topic; its links are the session's.
        grow: makes the topic's definition have at least so many queues.
    Attributes:
        looked_s: when Kafka was asked for the topic last.
    """

    def __init__(
        self,
        plan: CopyPlan,
        cluster_id: str,
        queues: EngineQueues,
        standstills: Standstills,
        grow: Callable[[int], None],
    ) -> None:
        self.plan, self.queues, self._cluster_id = plan, queues, cluster_id
        self._standstills, self._grow = standstills, grow
        self._kafka: KafkaTopic | None = None
        self.looked_s, self._again_s, self._grown = 0.0, 0.0, 0
        self._copies: dict[int, PartitionCopy] = {}
        self._halted: dict[int, tuple[int, int]] = {}  # (number, next) of the queue's source
        self._away: set[int] = set()
        self._unread: set[int] = set()
        self._stored = self._skipped = 0

    @property
    def stored(self) -> int:
        """Records that this run has stored."""
        return self._stored + sum(each.stored for each in [*self._copies.values()])

    @property
    def skipped(self) -> int:
        """Records that this run has left out, because they come from the topic itself."""
        return self._skipped + sum(each.skipped for each in [*self._copies.values()])

    @property
    def is_open(self) -> bool:
        """Whether Kafka has the topic."""
        return self._kafka is not None

    @property
    def positions(self) -> dict[Partition, int]:
        """The next position of each partition that is copied."""
        return {copy.partition: copy.position for copy in self._copies.values()}

    def see(self, found: KafkaTopic | None) -> bool:
        """Follow the topic in Kafka: its id and its number of partitions. Returns whether it was made again.

        Raises KafkaRefusal, ConfigError: nothing of it can be copied.
        """
        before = self._kafka
        if found is None:
            name = self.plan.kafka_topic
            sentence = f'kafka "{self.plan.cluster.name}": topic {quoted(name)}: it does not exist there'
            raise KafkaRefusal(UNKNOWN_TOPIC_OR_PARTITION, sentence)
        if found.partitions > self._grown:
            with suppress(StoreUnavailable):  # the next look tries again
                self._grow(found.partitions)
                self._grown = found.partitions
        self._kafka = found
        is_other = before is not None and found.id != before.id
        if before is None or is_other:
            self._forget_beyond(found.partitions)
            self._away |= {*range(found.partitions)}
            for each in self._away:
                self._drop(each)
        elif found.partitions > before.partitions:
            self._away |= {*range(before.partitions, found.partitions)}
        if before is None or found.partitions > before.partitions or is_other:
            self._again_s = 0.0
        self.looked_s = time.monotonic()
        self._standstills.clear(WHOLE)
        return is_other

    def begin_again(self) -> None:
        """Nothing of its partitions is read before they have begun again, now."""
        self._away |= {*self._copies}
        for each in [*self._copies]:
            self._drop(each)
        self._again_s = 0.0

    def end(self) -> None:
        """Nothing of the topic is copied until it is seen again."""
        for each in [*self._copies]:
            self._drop(each)
        self._halted.clear()
        self._away.clear()
        self._kafka = None

    def fail(self, fault: Exception) -> None:
        """As `end`, and say why."""
        self.end()
        if self._standstills.note(WHOLE, str(fault)):
            limited.warning("topic=%s: the copy stands still: %s", self.plan.topic, fault)

    def take_unread(self) -> list[Partition]:
        """Partitions that are not copied any more since the last call: nothing more is to be read of them."""
        found = [self._partition(each) for each in self._unread if each not in self._copies]
        self._unread.clear()
        return found

    def due(self) -> list[int]:
        """The partitions that are to begin now: new ones, and what a broker group or an operator may serve now."""
        if self._kafka is None or time.monotonic() < self._again_s:
            return []
        self._again_s = time.monotonic() + AGAIN_S
        again = set(self._away)
        for group, queues in self.queues.by_group(self._halted).items():
            with suppress(*ENGINE_FAULTS):
                states = self.queues.states(group, queues)
                again |= {queue for queue in queues if _place(states[queue]) != self._halted[queue]}
        return sorted(again)

    def begin(self, partitions: Iterable[int], ask_bounds: Bounds) -> list[Partition]:
        """Ask for the state of these partitions' queues; returns those that are to be read from there on.

        Raises KafkaFault.
        """
        wanted = [*partitions]
        for each in wanted:
            self._drop(each)
            self._halted.pop(each, None)
            self._away.add(each)
        for group, queues in self.queues.by_group(wanted).items():
            try:
                self._begin_at(group, queues, ask_bounds)
            except ENGINE_FAULTS as fault:
                left = [each for each in queues if each not in self._copies and each not in self._halted]
                self._lose(group, left, fault)
        return [self._partition(each) for each in wanted if each in self._copies]

    def take(self, records: Records) -> None:
        """Take a fetch that follows the one before."""
        if (copy := self._copies.get(records.partition.number)) is not None:
            copy.take(records)

    @property
    def has_waiting(self) -> bool:
        """Whether something that was fetched is not stored."""
        return any(not copy.is_idle and not copy.fault for copy in self._copies.values())

    def parts(self) -> dict[str, dict[int, CopyPart]]:
        """The next part of each queue, by broker group; each is to be settled, or lost."""
        waiting = self.queues.by_group(number for number, copy in self._copies.items() if not copy.is_idle)
        found = {
            group: {queue: part for queue in queues if (part := self._copies[queue].part()) is not None}
            for group, queues in waiting.items()
        }
        return {group: parts for group, parts in found.items() if parts}

    def settle(self, queue: int, answer: Copied) -> bool:
        """Take the answer to a queue's part; returns whether its state has to be asked for, by `begin`."""
        copy = self._copies.get(queue)
        return copy is not None and copy.settle(answer) is After.ASK

    def lose(self, group: str, queues: Iterable[int], fault: Exception) -> None:
        """A broker group does not serve these queues now; what was sent may be stored or not."""
        self._lose(group, [*queues], fault)

    def pass_over_deleted(self, ask_bounds: Bounds) -> None:
        """Move the engine's positions over records that Kafka has deleted and that this run read in vain.

        Only copied records move them, and not control records, aborted ones and the topic's own. The next start would
        take what is deleted for lost. Raises KafkaFault.
        """
        passed = [each.partition for each in self._copies.values() if each.has_passed]
        starts = {each.number: bounds.start for each, bounds in ask_bounds(passed).items()} if passed else {}
        deleted = [
            number
            for number, start in starts.items()
            if self._copies[number].next < start <= self._copies[number].position
        ]
        for group, queues in self.queues.by_group(deleted).items():
            for queue in queues:
                copy = self._copies[queue]
                try:
                    state = self.queues.accept(
                        group, queue, self._source(queue), copy.position, copy.number, PASSED_REASON, copy.next
                    )
                except ENGINE_FAULTS as fault:
                    self._lose(group, [queue], fault)
                else:
                    log.info(
                        "topic=%s queue=%d: passed over deleted records, up to %d", self.plan.topic, queue, state.next
                    )
                    copy.pass_over(state)

    def halt_faulty(self) -> None:
        """Stop the partitions whose next record cannot be copied."""
        for queue, copy in [*self._copies.items()]:
            if copy.fault:
                self._halt(queue, (copy.number, copy.next), copy.fault)

    # --- Parts of the above.

    def _forget_beyond(self, partitions: int) -> None:
        """Drop the partitions that a topic which was made again has no more."""
        for each in {*self._copies, *self._halted, *self._away}:
            if each >= partitions:
                self._drop(each)
                self._halted.pop(each, None)
                self._away.discard(each)
                self._standstills.clear(each)

    def _begin_at(self, group: str, queues: list[int], ask_bounds: Bounds) -> None:
        assert self._kafka is not None
        self.queues.create(group, self._kafka.partitions)
        log_id = self.queues.log_id(group)
        states = self.queues.states(group, queues)
        last = self.queues.last_copied(group, states)
        # After the states: another copier may go on meanwhile, and would seem to be beyond an earlier end.
        bounds = ask_bounds([self._partition(each) for each in queues])
        for queue, state in states.items():
            source, partition = self._source(queue), self._partition(queue)
            step = first_step(self.plan.topic, partition, state, source, bounds[partition], self._first_offset(queue))
            if isinstance(step, Begin):
                start = max([step.start, *self.queues.ends_elsewhere(group, queue, source)])
                state = self.queues.begin(group, queue, source, start)
                log.info("topic=%s queue=%d: the copy begins at offset %d", self.plan.topic, queue, start)
                step = Continue(state.next)
            if isinstance(step, Halt):
                self._halt(queue, _place(state), step.sentence)
                continue
            name = self.plan.topic.encode()
            target = PackTarget(name, self._kafka.id.bytes, queue, log_id, state.topic_id)
            is_kept = queue in last and bounds[partition].start <= last[queue].offset
            self._copies[queue] = PartitionCopy(partition, source, state, target, last=last[queue] if is_kept else None)
            self._away.discard(queue)
            self._standstills.clear(queue)

    def _first_offset(self, partition: int) -> int:
        offsets = self.plan.first_offsets
        return offsets[partition] if partition < len(offsets) else 0

    def _partition(self, number: int) -> Partition:
        return Partition(self.plan.kafka_topic, number)

    def _source(self, partition: int) -> ForeignSource:
        assert self._kafka is not None
        return source_of(self._cluster_id, self._kafka, partition)

    def _lose(self, group: str, queues: list[int], fault: Exception) -> None:
        for queue in queues:
            self._drop(queue)
            self._away.add(queue)
            self._tell(queue, f"broker group {group}: {fault}")

    def _halt(self, queue: int, place: tuple[int, int], sentence: str) -> None:
        self._drop(queue)
        self._away.discard(queue)
        self._halted[queue] = place
        self._tell(queue, sentence)

    def _drop(self, queue: int) -> None:
        copy = self._copies.pop(queue, None)
        if copy is not None:
            self._stored, self._skipped = self._stored + copy.stored, self._skipped + copy.skipped
            self._unread.add(queue)

    def _tell(self, queue: int, sentence: str) -> None:
        if self._standstills.note(queue, sentence):
            limited.warning("topic=%s queue=%d: the copy stands still: %s", self.plan.topic, queue, sentence)


def _place(state: SourceState) -> tuple[int, int]:
    return state.number, state.next

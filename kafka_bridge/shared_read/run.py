"""One topic of a member of a group on Kafka: the partitions that the group has given, and the engine's queues.

It has no clients of Kafka: `member.py` reads and commits for all topics of the group together.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from common.config.errors import StoreUnavailable
from common.kafka.base import END, ClusterAdmin, KafkaTopic
from common.kafka.codes import UNKNOWN_TOPIC_OR_PARTITION
from common.kafka.errors import KafkaRefusal
from common.kafka.records import Partition, Records
from common.limited_log import LimitedLog
from common.quoting import quoted
from engine.link.copy import SourceState
from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.copy_in.native import PackTarget
from kafka_bridge.copy_in.plan import CopyPlan
from kafka_bridge.copy_in.run import AGAIN_S, ENGINE_FAULTS
from kafka_bridge.copy_in.standstills import WHOLE, Standstills
from kafka_bridge.shared_read.partition import SharedPartition, next_in
from kafka_bridge.shared_read.tails import LastRecords, PutBackBelow, ReadAgain
from kafka_bridge.shared_read.tallies import SharedTallies
from kafka_bridge.source_identity import source_of

log = logging.getLogger("penstock.kafka_bridge")
limited = LimitedLog(log)
BACKLOG_S = 0.1
"""Interval at which the engine is asked what the group has acknowledged, while something waits there."""
OTHER_TOPIC = "Kafka had another topic of this name, or has lost records: the group goes on with what is there"


class SharedRun:
    """One topic, from the joining of the group until the member leaves it.

    Args:
        plan: with a membership.
        queues: of the hidden topic; their links are the member's.
        grow: makes the entry have at least so many queues.
        tallies: counted up, over all runs.
        admin, tails: the member's.
    Attributes:
        is_interrupted: whether positions of before an interruption are read on from: they may not be the group's any more.
    """

    def __init__(
        self, plan: CopyPlan, queues: EngineQueues, standstills: Standstills, grow: Callable[[int], None],
        tallies: SharedTallies, admin: ClusterAdmin, tails: LastRecords, cluster_id: str,
    ) -> None:  # fmt: skip
        assert plan.membership is not None
        self.plan, self.member, self.queues = plan, plan.membership, queues
        self._standstills, self._grow, self._tallies = standstills, grow, tallies
        self._admin, self._tails, self.cluster_id = admin, tails, cluster_id
        self.is_interrupted = False
        self._kafka: KafkaTopic | None = None
        self._parts: dict[int, SharedPartition] = {}
        self._active: set[int] = set()
        self._paused: set[int] = set()
        self._backlog_s = self._again_s = 0.0
        self._stored = self._skipped = 0

    @property
    def stored(self) -> int:
        return self._stored + sum(each.stored for each in [*self._parts.values()])

    @property
    def skipped(self) -> int:
        return self._skipped + sum(each.skipped for each in [*self._parts.values()])

    def see(self, found: KafkaTopic | None) -> None:
        """Follow the topic in Kafka: its id and its number of partitions. Raises KafkaRefusal, ConfigError."""
        name, before = self.plan.kafka_topic, self._kafka
        if found is None or (before is not None and found.id != before.id):
            what = "it does not exist there" if found is None else "it was deleted and made again"
            sentence = f'kafka "{self.plan.cluster.name}": topic {quoted(name)}: {what}'
            raise KafkaRefusal(UNKNOWN_TOPIC_OR_PARTITION, sentence)
        if before is None or found.partitions > before.partitions:
            with suppress(StoreUnavailable):
                self._grow(found.partitions)
                self._kafka = found
                for group in self.queues.groups:
                    with suppress(*ENGINE_FAULTS):
                        self.queues.create(group, found.partitions)
        self._kafka = self._kafka or found
        self._standstills.clear(WHOLE)

    def give(self, partitions: Collection[Partition]) -> None:
        """The group has given these."""
        for each in partitions:
            self._drop([each.number])
            self._parts[each.number] = SharedPartition(each)
        self._tallies.partitions = len(self._parts)

    def take_away(self, partitions: Collection[Partition]) -> list[int]:
        """The group asks for these; returns the numbers of those that were here."""
        given = [each.number for each in partitions if each.number in self._parts]
        self._drop(given)
        return given

    def lose(self, partitions: Collection[Partition]) -> None:
        """Others may have these already."""
        self._drop(each.number for each in partitions)
        self._tallies.lost += len(partitions)

    def interrupt(self) -> dict[Partition, int]:
        """Kafka may have been put back: before anything more is stored, what was copied last is compared.

        What was fetched and not stored is dropped: returns from where on to read it again.
        """
        self.is_interrupted = True
        return {each.partition: at for each in self._parts.values() if (at := each.drop()) is not None}

    def note_unacknowledged(self, partitions: Collection[int]) -> None:
        """These were given up before the group has acknowledged what was copied of them."""
        self._tallies.order_broken += len(partitions)
        if partitions:
            limited.warning(
                "topic=%s: partitions %s are given up before the group has acknowledged what was copied of them",
                self.plan.topic, [*partitions],
            )  # fmt: skip

    # --- Records.

    @property
    def is_idle(self) -> bool:
        """Whether everything that was fetched is stored."""
        return all(self._parts[each].is_idle for each in self._active)

    @property
    def is_active(self) -> bool:
        """Whether something waits to be stored, committed or acknowledged."""
        return bool(self._active)

    def take(self, records: Records) -> None:
        """Take a fetch that follows the one before."""
        if (part := self._parts.get(records.partition.number)) is not None:
            part.take(records)
            self._active.add(records.partition.number)

    def positions(self, partitions: Collection[Partition] | None = None) -> dict[Partition, int]:
        """What is stored and not committed yet, of these partitions; None: of all."""
        numbers = self._active if partitions is None else {each.number for each in partitions} & self._active
        parts = [self._parts[each] for each in numbers]
        return {each.partition: at for each in parts if (at := each.position) is not None and at != each.committed}

    def notes(self, partitions: Collection[Partition]) -> dict[Partition, str]:
        """What to commit with the positions of these partitions."""
        return {each: self._parts[each.number].note for each in partitions}

    def note_committed(self, partition: Partition, at: int) -> None:
        self._parts[partition.number].committed = at

    def pace(self) -> tuple[list[Partition], list[Partition]]:
        """Partitions to pause and to resume: those are read on of which all is stored, and for which there is room."""
        full = {number for number in self._active if not self._parts[number].is_idle}
        pauses = [self._parts[each].partition for each in full - self._paused]
        resumes = [self._parts[each].partition for each in (self._paused & self._parts.keys()) - full]
        self._paused = full
        self._active = {each for each in self._active if self._is_active(self._parts[each])}
        return pauses, resumes

    def _is_active(self, part: SharedPartition) -> bool:
        at = part.position
        return not part.is_idle or part.ahead.messages > 0 or (at is not None and at != part.committed)

    def store(self) -> None:
        """Store what waits, as far as there is room."""
        self._see_backlog()
        if time.monotonic() < self._again_s:
            return
        busy = True
        while busy:
            waiting = [each for each in self._active if not self._parts[each].is_idle and not self._parts[each].fault]
            busy = False
            for group, queues in self.queues.by_group(waiting).items():
                try:
                    self._begin(group, [each for each in queues if not self._parts[each].is_begun])
                    busy = self._append(group, queues) or busy
                except ENGINE_FAULTS as fault:
                    self._lose(group, queues, fault)
        for number in self._active:
            if self._parts[number].fault:
                self._tell(number, self._parts[number].fault)

    def _append(self, group: str, queues: list[int]) -> bool:
        """Append one part of each of these queues; returns whether there was any."""
        parts = {queue: part for queue in queues if (part := self._parts[queue].part()) is not None}
        for queue, answer in zip(parts, self.queues.copy(group, [*parts.values()]) if parts else [], strict=True):
            self._parts[queue].settle(answer)
        return bool(parts)

    def _begin(self, group: str, queues: list[int]) -> None:
        """Ask for the state of these queues; where they have no source, or another one, it is accepted."""
        if not queues or self._kafka is None:
            return
        self.queues.create(group, self._kafka.partitions)
        log_id = self.queues.log_id(group)
        states = self.queues.states(group, queues)
        lost = self._compare(group, log_id, states)
        for queue, state in states.items():
            part = self._parts[queue]
            source = source_of(self.cluster_id, self._kafka, queue)
            state = self._accepted(group, part, state, queue in lost)
            name = self.member.message_topic.encode()
            part.begin(source, state, PackTarget(name, self._kafka.id.bytes, queue, log_id, state.topic_id))
            self._standstills.clear(queue)

    def _compare(self, group: str, log_id: str, states: Mapping[int, SourceState]) -> set[int]:
        """Queues whose last copied record Kafka has not, and whose group begins to read below it.

        Raises PutBackBelow: a group would pass over what Kafka has there now. ReadAgain.
        """
        assert self._kafka is not None
        own = {
            queue: state for queue, state in states.items()
            if state.source == source_of(self.cluster_id, self._kafka, queue)
        }  # fmt: skip
        self._check_copies(log_id, own)
        last = {self._parts[queue].partition: at for queue, at in self.queues.last_copied(group, own).items()}
        lost = self._tails.lost(self.cluster_id, self._kafka, last)
        for each in lost:
            if self._parts[each.number].first_offset > last[each].offset:
                raise PutBackBelow(self.member.group, each, last[each])
        return {each.number for each in lost}

    def _check_copies(self, log_id: str, states: Mapping[int, SourceState]) -> None:
        """Raise ReadAgain where the engine has less than was committed for it, and the group reads on behind that."""
        places = {
            self._parts[queue].partition: state for queue, state in states.items()
            if self._parts[queue].first_offset > state.next
        }  # fmt: skip
        committed = self._admin.committed(self.member.group, places) if places else {}
        lost = {
            each: state.next for each, state in places.items()
            if each in committed and next_in(committed[each].note, log_id, state.topic_id) > state.next
        }  # fmt: skip
        if lost:
            told = ", ".join(f"partition {each.number} from offset {at:,} on" for each, at in sorted(lost.items()))
            raise ReadAgain(
                lost, f"the engine has lost copies, which group {self.member.group} gets again from Kafka: {told}"
            )

    def _accepted(self, group: str, part: SharedPartition, state: SourceState, is_lost: bool) -> SourceState:
        """The state once the partition is the queue's source. The group's position says where it begins.

        A group reads a topic by its name, as all its members on Kafka do: one that was made again is just read on.
        """
        assert self._kafka is not None
        queue, first = part.partition.number, part.first_offset
        source = source_of(self.cluster_id, self._kafka, queue)
        if not state.number:
            return self.queues.begin(
                group, queue, source, max([first, *self.queues.ends_elsewhere(group, queue, source)])
            )
        # After the state: another member may have gone on meanwhile, and would seem to be beyond an earlier end.
        end = self._admin.offsets([part.partition], END)[part.partition]
        if state.source == source and (end is None or end >= state.next) and not is_lost:
            return state
        limited.warning("topic=%s queue=%d: %s", self.plan.topic, queue, OTHER_TOPIC)
        return self.queues.accept(group, queue, source, first, state.number, OTHER_TOPIC)

    def _lose(self, group: str, queues: list[int], fault: Exception) -> None:
        """A broker group does not serve these queues now; what was sent may be stored or not."""
        self._again_s = time.monotonic() + AGAIN_S
        for queue in queues:
            self._parts[queue].forget()
            self._tell(queue, f"broker group {group}: {fault}")

    def _tell(self, queue: int, sentence: str) -> None:
        if self._standstills.note(queue, sentence):
            limited.warning("topic=%s queue=%d: the copy stands still: %s", self.plan.topic, queue, sentence)

    def _see_backlog(self) -> None:
        now_s = time.monotonic()
        if now_s < self._backlog_s + BACKLOG_S:
            return
        parts = {each: self._parts[each] for each in self._active}
        wanted = [number for number, each in parts.items() if not each.is_idle or each.ahead.messages]
        for group, queues in self.queues.by_group(wanted).items():
            with suppress(*ENGINE_FAULTS):  # the next append tells it
                found = self.queues.lags(group, self.member.group)
                for queue in queues:
                    if queue < len(found):
                        self._parts[queue].ahead.see(found[queue])
        self._backlog_s = now_s

    def _drop(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            part = self._parts.pop(number, None)
            if part is not None:
                self._stored, self._skipped = self._stored + part.stored, self._skipped + part.skipped
                self._tallies.repeated += part.repeated
            self._paused.discard(number)
            self._active.discard(number)
            self._standstills.clear(number)
        self._tallies.partitions = len(self._parts)

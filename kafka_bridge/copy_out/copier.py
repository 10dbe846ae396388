"""The copy of one topic of the engine to a topic of Kafka, by turns: each message once, per queue in order.

Records and positions are one transaction of Kafka. So a copier that is killed at any moment leaves nothing half done:
the next one ends the open transaction, which fences this one, and begins at the position that is committed. Where the
outcome of a commit is unknown the copier does the same with itself.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from common.config.definitions.copies import CopyOutDefinition
from common.kafka.base import (
    EARLIEST,
    END,
    STABLE_END,
    ClusterAdmin,
    KafkaDriver,
    KafkaProducer,
    KafkaTopic,
    PartitionReader,
    ProducerOptions,
    ReaderOptions,
)
from common.kafka.errors import KafkaFault
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from common.limited_log import LimitedLog
from engine.client.admin import AdminError
from engine.link.copy import SourceState
from engine.link.errors import LinkError
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_in.core import PartitionBounds
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_in.status import KafkaSide, without_last_copied
from kafka_bridge.copy_out.cut_places import CutChecks, copied_below, cut_places
from kafka_bridge.copy_out.engine_reads import EngineReads, MessagesDeleted
from kafka_bridge.copy_out.lacked import open_partitions
from kafka_bridge.copy_out.page import EngineTopic, OutgoingPage, is_from
from kafka_bridge.copy_out.positions import CopiedPositions, group_of, note_of, topic_of, transactional_id
from kafka_bridge.copy_out.tails import TailDiffers, TailRange, places_to_check
from kafka_bridge.heartbeat import Heartbeat
from kafka_bridge.mapping import UnmappableMessage

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
COMMIT_S, COMMIT_BYTES = 0.2, 4 << 20
"""A transaction ends after this time or payload: what a reader of committed records waits at most."""
KEEP_S = 3_600.0
"""Interval at which positions are committed that have not moved. Kafka expires those of a quiet group, after 7 days by
default, and counts from the last commit."""
BACKOFF_S, CLOSE_S = 1.0, 1.0
IDLE_S, TURN_S = 60.0, 1.0
"""A copy without a message for so long ends its turn. One that others wait for ends it at once then, or after TURN_S."""
WAIT_S = 60.0
"""A copy that waits longer for its turn is told. More copies than producers wait for a while each."""
FAULTS_SHOWN, LOOK_S = 3, 10.0
SHAPE_S = 30.0
"""Pause between two turns of a copy some of whose queues have no partition in Kafka."""
Leaders = Mapping[Partition, int | None]
"""Epochs of the leaders of partitions."""
_FAULTS = (KafkaFault, AdminError, LinkError, OSError, MessagesDeleted, TailDiffers, UnmappableMessage)


class TurnClients:
    """Clients of a cluster for one thread's turns. They are made at the first use, and again once the files have changed.

    Args:
        follow: reads the cluster's files. Raises ClusterUnreachable.
    """

    def __init__(self, driver: KafkaDriver, follow: Callable[[], FollowedConnection]) -> None:
        self.driver, self._follow = driver, follow
        self._kafka: FollowedConnection | None = None
        self._admin: ClusterAdmin | None = None

    def refresh(self) -> FollowedConnection:
        """The cluster's connection, as its files are now. Raises ClusterUnreachable."""
        if self._kafka is None or self._kafka.is_outdated():
            self.close()
            self._kafka = self._follow()
        return self._kafka

    def admin(self) -> ClusterAdmin:
        """By the connection that `refresh` gave last. Raises KafkaFault."""
        if self._admin is None:
            self._admin = self.driver.admin(self.refresh().opened)
        return self._admin

    def close(self) -> None:
        """Close them; the next use makes others."""
        admin, self._admin, self._kafka = self._admin, None, None
        if admin is not None:
            admin.close()


class OutCopier:
    """The copy of one topic. It has a producer of its own while it has a turn, and none between two turns.

    Each turn opens the producer, which fences all earlier ones of the copy, and then reads the positions. So nothing that is
    kept between turns decides about what is copied.

    Args:
        open_engine: links to the engine's brokers; called at each turn. Raises OSError, LinkError, AdminError.
    Attributes:
        fault: why the last turn has copied nothing; empty: it has.
        heart: beats while there is a turn or one is due.
        copied, skipped: records since the start, of committed transactions.
        next: after a turn that ended in good order: next offset per queue that is copied. None: a turn is due.
        due_s, again_s: monotonic times: there is no turn before the first one, and one in any case after the second one.
        kept_s: when all positions were committed last.
        on_stop: called once it is to end.
    """

    def __init__(self, copy: CopyOutDefinition, open_engine: Callable[[], EngineReads]) -> None:
        self.copy, self._open = copy, open_engine
        self._stopping, self.ended = threading.Event(), threading.Event()
        self.on_stop: Callable[[], object] = lambda: None
        self.fault, self.heart = "", Heartbeat()
        self.copied = self.skipped = 0
        self.next: dict[int, int] | None = None
        self.due_s = self.again_s = 0.0
        self.kept_s = -KEEP_S
        self._checked: tuple[tuple[str, ...], Leaders] | None = None

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def standing(self) -> str:
        """Why nothing is copied now; empty: it is, or there is nothing to copy."""
        silence = self.heart.fault
        return self.fault or (silence and f"copy_out={self.copy.name}: {silence}")

    def wait_for_turn(self) -> None:
        """A turn is due."""
        self.heart.beat("a turn, which others have", WAIT_S)

    def stop(self) -> None:
        """End after the present transaction; see `join`."""
        self._stopping.set()
        self.on_stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; False: it has not ended in time."""
        return self.ended.wait(timeout_s)

    def take_turn(self, clients: TurnClients, is_awaited: Callable[[], bool] = lambda: False) -> None:
        """Copy until nothing has come for a while, until a fault, or until others have waited for long enough.

        Args:
            is_awaited: whether another copy waits for this one's turn to end.
        """
        self.next = None
        self.heart.rest()
        if self.is_stopping:
            return
        self.heart.beat()
        try:
            with closing(self._open()) as engine:
                self._copy_from(engine, clients, is_awaited)
        except _FAULTS as fault:
            self.tell(fault)
            clients.close()
        except Exception as fault:
            limited.exception("copy_out=%s: internal error", self.copy.name)
            self.tell(f"internal error: {fault}")
            clients.close()
        finally:
            self.heart.rest()

    def tell(self, fault: object) -> None:
        """Nothing is copied now, for this reason; the next turn comes after a pause."""
        self.due_s = time.monotonic() + BACKOFF_S
        sentence = f"copy_out={self.copy.name}: {fault}"
        if sentence != self.fault:
            limited.warning("%s", sentence)
        self.fault = sentence

    def _copy_from(self, engine: EngineReads, clients: TurnClients, is_awaited: Callable[[], bool]) -> None:
        """Copy until the turn ends, or until files of the cluster, queues or brokers are others than the clients have."""
        kafka, places = clients.refresh(), engine.places()
        options = ProducerOptions(transactional_id=transactional_id(self.copy))
        # Opening ends what an earlier copier left open, so it comes before the positions are read.
        with closing(_Closing(clients.driver.producer(kafka.opened, options))) as opened:
            admin = clients.admin()
            topic = topic_of(admin, self.copy.topic_of_kafka)
            copied = CopiedPositions(
                lambda: admin, lambda: clients.driver.reader(kafka.opened, ReaderOptions()), group_of(self.copy)
            )
            asked = [Partition(topic.name, each) for each in places if each < topic.partitions]
            committed = copied.committed(asked)
            positions = copied.of(
                topic, places, committed, engine.cut, lambda queue, at: engine.message_at(queue, at).is_deleted
            )
            self._warn_of_leaps(committed, positions)
            leaders = admin.leader_epochs(asked)
            self._check_tails(engine, topic, places, positions, committed, clients, leaders)
            opened.producer.partitions(topic.name)
            transactions = _Transactions(
                self.copy,
                opened.producer,
                engine,
                places,
                topic,
                positions,
                lambda: admin.leader_epochs(asked) == leaders,
            )
            if not transactions.are_kept(committed):
                self.kept_s = -KEEP_S
            self._copy_on(transactions, lambda: self._goes_on(engine, kafka), is_awaited)
        self.next = {queue: positions.get(queue, engine.begin(queue)) for queue in places if queue < topic.partitions}
        self.again_s = time.monotonic() + (SHAPE_S if self.fault else KEEP_S)

    def _warn_of_leaps(self, committed: Mapping[Partition, CommittedPosition], positions: Mapping[int, int]) -> None:
        for partition, each in committed.items():
            at = positions.get(partition.number, each.offset)
            if partition.topic == self.copy.topic_of_kafka and not each.note and each.offset > at:
                limited.warning(
                    "copy_out=%s: the position %d of group %s in partition %d is not followed: the copy goes on at %d, as the "
                    "messages from there on are not in Kafka",
                    self.copy.name, each.offset, group_of(self.copy), partition.number, at,
                )  # fmt: skip

    def _check_tails(
        self, engine: EngineReads, topic: KafkaTopic, places: Mapping[int, EngineTopic], positions: Mapping[int, int],
        committed: Mapping[Partition, CommittedPosition], clients: TurnClients, leaders: Leaders,
    ) -> None:  # fmt: skip
        """Raise TailDiffers where a side lacks what was copied last. Once per start of the engines, as a running log only grows,
        and per leader of a partition of Kafka, which may have less than the one before.
        """
        if engine.starts and (engine.starts, leaders) == self._checked:
            return
        cut = engine.cut if engine.cut is not None and engine.cut.kafka_topic_id == str(topic.id) else None
        copied = places_to_check(topic.name, topic.id, places, positions, committed)
        others = [queue for queue in places if queue not in positions and queue < topic.partitions] if cut else []
        if copied or others:
            admin, asked = clients.admin(), [*copied, *(Partition(topic.name, queue) for queue in others)]
            starts, last_ends = admin.offsets(asked, EARLIEST), admin.offsets(asked, END)
            ends = admin.offsets(asked, STABLE_END)
            states = {each.number: engine.sources(each.number) for each in asked}
            cuts = cut_places(topic, cut, places, states, positions, starts, ends)
            with closing(clients.driver.reader(clients.refresh().opened, ReaderOptions())) as reader:
                checks = CutChecks(reader, lambda each, at: engine.message_at(each.number, at), group_of(self.copy))
                ranges = {
                    each: TailRange(
                        place, max(starts[each] or 0, cut.kafka_end(each.number) if cut else 0), ends[each] or 0
                    )
                    for each, place in copied.items()
                }
                below = copied_below(topic, states, positions, starts, ends, copied)
                faults = checks.faults(cuts, below, open_partitions(last_ends, ends)) | checks.tails.faults(ranges)
                last = engine.last_copied({each.number: states[each.number] for each in cuts})
                losses = self._losses(
                    reader, topic, {Partition(topic.name, q): at for q, at in last.items()}, starts, ends
                )
                if told := [*losses, *faults.values()]:
                    raise TailDiffers("; ".join(told[:FAULTS_SHOWN]))
        self._checked = engine.starts, leaders

    def _losses(
        self, reader: PartitionReader, topic: KafkaTopic, last: Mapping[Partition, LastCopied],
        starts: Mapping[Partition, int | None], ends: Mapping[Partition, int | None],
    ) -> list[str]:  # fmt: skip
        """Sentences about partitions that have not what was copied from them last."""
        bounds = {each.number: PartitionBounds(starts[each] or 0, ends[each] or 0) for each in last}
        side = KafkaSide("", topic, bounds, {number: each.end for number, each in bounds.items()})
        lost = without_last_copied(reader, last, side, LOOK_S) if last else set()
        return [last[each].loss(self.copy.name, each, is_moved=True) for each in sorted(lost)]

    def _copy_on(
        self, transactions: "_Transactions", goes_on: Callable[[], bool], is_awaited: Callable[[], bool]
    ) -> None:
        began_s = moved_s = time.monotonic()
        while goes_on():
            self.heart.beat()
            has_moved = transactions.commit_next(self, in_haste=is_awaited())
            now_s = time.monotonic()
            moved_s = now_s if has_moved else moved_s
            self.fault = self._shape_fault(transactions.places, transactions.topic.partitions)
            if transactions.is_outdated() or now_s >= moved_s + IDLE_S:
                return
            if is_awaited() and (not has_moved or now_s >= began_s + TURN_S):
                return

    def _goes_on(self, engine: EngineReads, kafka: FollowedConnection) -> bool:
        return not self._stopping.is_set() and engine.is_current() and not kafka.is_outdated()

    def _shape_fault(self, places: dict[int, EngineTopic], partitions: int) -> str:
        """Why some queues are not copied; empty: all are."""
        if max(places, default=-1) < partitions:
            return ""
        return (
            f"copy_out={self.copy.name}: the topic has {max(places) + 1:,} queues and {partitions:,} partitions in Kafka: "
            f"queues from {partitions:,} on wait until it has as many: add them there"
        )


class _Transactions:
    """What one turn reads of the engine, and commits in Kafka together with its positions.

    Args:
        positions: moved on with each transaction.
        has_same_leaders: asked before each transaction: a copy that Kafka has lost is written again before others.
    """

    def __init__(
        self, copy: CopyOutDefinition, producer: KafkaProducer, engine: EngineReads, places: dict[int, EngineTopic],
        topic: KafkaTopic, positions: dict[int, int], has_same_leaders: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._copy, self._producer, self._engine, self.places = copy, producer, engine, places
        self.topic, self._positions = topic, positions
        self._has_same_leaders, self._is_led_otherwise = has_same_leaders, False
        self._notes = {queue: note_of(place, topic.id) for queue, place in places.items()}

    def are_kept(self, committed: Mapping[Partition, CommittedPosition]) -> bool:
        """Whether the group has all positions, with their notes."""
        of_topic = {queue: committed.get(Partition(self.topic.name, queue)) for queue in self._positions}
        return all(
            each is not None and each.offset == self._positions[queue] and each.note.startswith(self._notes[queue])
            for queue, each in of_topic.items()
        )

    def is_outdated(self) -> bool:
        """Whether Kafka's topic has another number of partitions, or other leaders. Raises KafkaFault."""
        return self._is_led_otherwise or self._producer.partitions(self.topic.name) != self.topic.partitions

    def commit_next(self, copier: OutCopier, in_haste: bool) -> bool:
        """Copy what comes next; returns whether anything did. Raises KafkaFault, AdminError, LinkError, OSError.

        Args:
            copier: counts, and knows when all positions were committed.
            in_haste: do not wait for more than there is.
        """
        page, now_s = self._page(in_haste), time.monotonic()
        is_due = now_s >= copier.kept_s + KEEP_S and bool(self._positions)
        if page.records.topics and not self._has_same_leaders():
            self._is_led_otherwise = True
            return False
        if page.next or is_due:
            self._positions.update(page.next)
            self._commit(page, self._positions if is_due else page.next)
            copier.kept_s = now_s if is_due else copier.kept_s
            copier.copied += len(page.records.topics)
            copier.skipped += page.skipped
        return bool(page.next)

    def _page(self, in_haste: bool) -> OutgoingPage:
        """Gather records for one transaction."""
        sources: dict[int, SourceState] = {}

        def is_own(queue: int, offset: int) -> bool:
            if queue not in sources:
                sources[queue] = self._engine.sources(queue)
            return is_from(sources[queue], offset, self.topic.id)

        page = OutgoingPage(self._copy.topic_of_kafka, self.places, is_own, self.topic.id)
        ends = time.monotonic() + COMMIT_S
        while (left := ends - time.monotonic()) > 0 and page.bytes < COMMIT_BYTES:
            sources.clear()  # a source of what is read next may have been accepted since
            at, room = {**self._positions, **page.next}, COMMIT_BYTES - page.bytes
            wait_ms = 0 if in_haste else int(left * 1000)
            if not self._engine.read(at, room, wait_ms, page.add, self.topic.partitions):
                if in_haste:
                    break
                time.sleep(min(left, COMMIT_S / 10))
        return page

    def _commit(self, page: OutgoingPage, positions: dict[int, int]) -> None:
        topic, records = self._copy.topic_of_kafka, page.records
        self._producer.begin()
        if records.topics:
            self._producer.produce(records, lambda results: None)  # commit() raises where one was refused
        places = {Partition(topic, queue): queue for queue in positions}
        at = {each: positions[queue] for each, queue in places.items()}
        self._producer.commit(at, group_of(self._copy), {each: self._notes[queue] for each, queue in places.items()})


class _Closing:
    """A producer that is closed without waiting long for what nobody needs any more."""

    def __init__(self, producer: KafkaProducer) -> None:
        self.producer = producer

    def close(self) -> None:
        self.producer.close(CLOSE_S)

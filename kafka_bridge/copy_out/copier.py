"""The copier from one topic of the engine to a topic of Kafka: each message once, per queue in order.

Records and positions are one transaction of Kafka. So a copier that is killed at any moment leaves nothing half done:
the next one ends the open transaction, which fences this one, and begins at the position that is committed. Where the
outcome of a commit is unknown the copier does the same with itself.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing

from common.config.definitions.copies import CopyOutDefinition
from common.kafka.base import (
    KafkaDriver,
    KafkaProducer,
    KafkaTopic,
    ProducerOptions,
    ReaderOptions,
)
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition
from common.limited_log import LimitedLog
from engine.client.admin import AdminError
from engine.link.copy import SourceState
from engine.link.errors import LinkError
from engine.link.pieces import AnswerPiece
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_out.engine_reads import EngineReads, MessagesDeleted
from kafka_bridge.copy_out.page import EngineTopic, OutgoingPage, is_from
from kafka_bridge.copy_out.positions import CopiedPositions, group_of, note_of, topic_of, transactional_id
from kafka_bridge.mapping import UnmappableMessage

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
COMMIT_S, COMMIT_BYTES = 0.2, 4 << 20
"""A transaction ends after this time or payload: what a reader of committed records waits at most."""
KEEP_S = 3_600.0
"""Interval at which positions are committed that have not moved. Kafka expires those of a quiet group, after 7 days by
default, and counts from the last commit."""
BACKOFF_S, CLOSE_S = 1.0, 1.0
IDLE_S, WATCH_S = 60.0, 1.0
"""A copy without a message for so long closes its producer, whose client has threads and connections, and asks the engine
for the next message at this interval. Opening again takes less than a second."""
_FAULTS = (KafkaFault, AdminError, LinkError, OSError, MessagesDeleted, UnmappableMessage)


class OutCopier:
    """InCopies until it is stopped, in the thread that calls `run`; begins again after each fault.

    Args:
        follow: reads the cluster's files; called at each opening. Raises ClusterUnreachable.
        open_engine: links to the engine's brokers; called after each fault. Raises OSError, LinkError, AdminError.
    Attributes:
        fault: why nothing is copied now; empty: it is.
        copied, skipped: records since the start, of committed transactions.
    """

    def __init__(
        self, copy: CopyOutDefinition, driver: KafkaDriver, follow: Callable[[], FollowedConnection],
        open_engine: Callable[[], EngineReads],
    ) -> None:  # fmt: skip
        self._copy, self._driver, self._follow, self._open = copy, driver, follow, open_engine
        self._stopping = threading.Event()
        self.fault = ""
        self.copied = self.skipped = 0

    def stop(self) -> None:
        """Let `run` return after the present transaction."""
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._copy_on()
            except _FAULTS as fault:
                self.fault = f"copy_out={self._copy.name}: {fault}"
                limited.warning("%s", self.fault)
                self._stopping.wait(BACKOFF_S)
            except Exception as fault:
                self.fault = f"copy_out={self._copy.name}: internal error: {fault}"
                limited.exception("copy_out=%s: internal error", self._copy.name)
                self._stopping.wait(BACKOFF_S)

    def _copy_on(self) -> None:
        with closing(self._open()) as engine:
            self._copy_from(engine)

    def _copy_from(self, engine: EngineReads) -> None:
        """Copy until a fault, the end, other files of the cluster, or other queues or brokers than the links have."""
        kafka = self._follow()
        options = ProducerOptions(transactional_id=transactional_id(self._copy))
        # Opening ends what an earlier copier left open, so it comes before the positions are read.
        with closing(_Closing(self._driver.producer(kafka.opened, options))) as opened:
            places = engine.places()
            with closing(self._driver.admin(kafka.opened)) as admin:
                topic = topic_of(admin, self._copy.topic_of_kafka)
                copied = CopiedPositions(
                    lambda: admin, lambda: self._driver.reader(kafka.opened, ReaderOptions()), group_of(self._copy)
                )
                positions = copied.of(topic, places, copied.committed(), engine.cut)
            notes = {queue: note_of(place, topic.id) for queue, place in places.items()}
            opened.producer.partitions(topic.name)
            moved_s, kept_s = time.monotonic(), -KEEP_S
            while self._goes_on(engine, kafka) and time.monotonic() < moved_s + IDLE_S:
                page = self._read(engine, places, topic, positions)
                is_due = time.monotonic() >= kept_s + KEEP_S
                if page.next or (is_due and positions):
                    positions.update(page.next)
                    self._commit(opened.producer, page, positions if is_due else page.next, notes)
                    kept_s = time.monotonic() if is_due else kept_s
                moved_s = time.monotonic() if page.next else moved_s
                self.fault = self._shape_fault(places, topic.partitions)
                if opened.producer.partitions(topic.name) != topic.partitions:
                    return
        if not self.fault:
            self._watch(engine, kafka, positions)

    def _goes_on(self, engine: EngineReads, kafka: FollowedConnection) -> bool:
        return not self._stopping.is_set() and engine.is_current() and not kafka.is_outdated()

    def _watch(self, engine: EngineReads, kafka: FollowedConnection, positions: dict[int, int]) -> None:
        """Wait, without clients of Kafka, for a message beyond the positions; it is read again after an opening."""
        ends = time.monotonic() + KEEP_S
        while self._goes_on(engine, kafka) and time.monotonic() < ends and not engine.read(positions, 1, 0, _ignored):
            self._stopping.wait(WATCH_S)

    def _shape_fault(self, places: dict[int, EngineTopic], partitions: int) -> str:
        """Why some queues are not copied; empty: all are."""
        if max(places, default=-1) < partitions:
            return ""
        return (
            f"copy_out={self._copy.name}: the topic has {max(places) + 1:,} queues and {partitions:,} partitions in Kafka: "
            f"queues from {partitions:,} on wait until it has as many: add them there"
        )

    def _read(
        self, engine: EngineReads, places: dict[int, EngineTopic], topic: KafkaTopic, positions: dict[int, int]
    ) -> OutgoingPage:
        """Gather records for one transaction."""
        sources: dict[int, SourceState] = {}

        def is_own(queue: int, offset: int) -> bool:
            if queue not in sources:
                sources[queue] = engine.sources(queue)
            return is_from(sources[queue], offset, topic.id)

        page = OutgoingPage(self._copy.topic_of_kafka, places, is_own, topic.id)
        ends = time.monotonic() + COMMIT_S
        while (left := ends - time.monotonic()) > 0 and page.bytes < COMMIT_BYTES:
            sources.clear()  # a source of what is read next may have been accepted since
            at, room = {**positions, **page.next}, COMMIT_BYTES - page.bytes
            if not engine.read(at, room, int(left * 1000), page.add, topic.partitions):
                self._stopping.wait(min(left, COMMIT_S / 10))
        return page

    def _commit(
        self, producer: KafkaProducer, page: OutgoingPage, positions: dict[int, int], notes: dict[int, str]
    ) -> None:
        topic, records = self._copy.topic_of_kafka, page.records
        producer.begin()
        if records.topics:
            producer.produce(records, lambda results: None)  # commit() raises where one was refused
        places = {Partition(topic, queue): queue for queue in positions}
        at = {each: positions[queue] for each, queue in places.items()}
        producer.commit(at, group_of(self._copy), {each: notes[queue] for each, queue in places.items()})
        self.copied += len(records.topics)
        self.skipped += page.skipped


def _ignored(piece: AnswerPiece) -> None:
    """Drop a piece: the read was made only to learn whether there is one."""


class _Closing:
    """A producer that is closed without waiting long for what nobody needs any more."""

    def __init__(self, producer: KafkaProducer) -> None:
        self.producer = producer

    def close(self) -> None:
        self.producer.close(CLOSE_S)

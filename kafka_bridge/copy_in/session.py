"""One run of a cluster's copier: the clients that all its topics share, from their opening until an error of the cluster.

One administration client, one reader of all partitions, one link per broker group. An error of one topic makes that topic
stand still; an error of the cluster ends the session.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping

from common.config.errors import ConfigError
from common.kafka.base import EARLIEST, END, ClusterAdmin, KafkaDriver, PartitionReader, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.errors import ClusterUnreachable, KafkaFault, KafkaRefusal, LoginRefused, PositionOutOfRange
from common.kafka.records import Partition, Records
from common.limited_log import LimitedLog
from engine.client import copied
from engine.client.admin import AdminError
from engine.client.blocking import LeadingLink
from engine.link.copy import CopyPart
from kafka_bridge.copy_in.core import PartitionBounds
from kafka_bridge.copy_in.run import ENGINE_FAULTS, LOOK_S, TopicRun

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
POLL_S, FETCH_WAIT_S, IDLE_S = 1.0, 2.0, 0.2
"""Longest wait for records, and how long a broker waits for the first of them: what comes is returned at once."""
LONG_WAIT_S, LONG_WAIT_PARTITIONS = 5.0, 1_000
"""How long a broker waits where so many partitions are read: kafka-python looks at each of them for every request, 10 us of
CPU. It delays the first records of a partition that is added while nothing comes of the others."""
ROUND_S, FULL_RECORDS = 0.02, 5_000
"""A poll that returned fewer records is followed by the next one after so long. A round of fetch and append costs some 2 ms
of CPU here and at the broker, however few records it has; and they come no sooner at a consumer by more of them."""
LOOK_ALL_S, LOOK_TOPICS = 1.0, 100
"""Interval at which Kafka is asked for all topics, in one question, and the topics that prolong it by as much: they may have
more partitions, or be missing. An answer costs 33 us of CPU per topic."""
BEGIN_TOPICS_MAX = 50
"""Topics that begin between two polls: a first begin waits for the engine's disk, once per partition."""
PASS_S = 60.0
"""Interval at which positions are moved over what Kafka has deleted and held nothing to copy. Retention works in minutes."""
GAP_S = 5.0
"""A bridge that has not asked Kafka for so long, for example a stopped one, begins all partitions again: their last copied
records are compared. It is a second line, beside the reader's interruptions; a step of many topics takes seconds."""
REQUEST_BYTES_MAX = 8 << 20
"""Records of one request to a broker group, of all topics; the last part may pass it."""
_OF_CLUSTER = (ClusterUnreachable, LoginRefused)


def check_cluster(admin: ClusterAdmin, cluster_id: str) -> None:
    """Raise KafkaFault where the cluster at the address is another one by now."""
    found = admin.describe().cluster_id
    if found != cluster_id:
        raise ClusterUnreachable(f"another cluster answers at its address: its id is {found}, and was {cluster_id}")


class ClusterSession:
    """
    Args:
        links: by broker group; the owner closes them.
    """

    def __init__(self, driver: KafkaDriver, connection: KafkaConnection, links: Mapping[str, LeadingLink]) -> None:
        self._driver, self._connection, self._links = driver, connection, links
        self._admin: ClusterAdmin = driver.admin(connection)
        self.cluster_id = self._admin.describe().cluster_id
        self._reader: PartitionReader | None = None
        self._waits_long, self._interruptions = False, 0
        self._runs: dict[str, TopicRun] = {}  # by topic of Kafka
        self._looked_s, self._passed_s = 0.0, time.monotonic()
        self._asked_s, self._was_slow = time.monotonic(), False

    @property
    def topics(self) -> set[str]:
        """Topics of Kafka that are copied."""
        return {*self._runs}

    def add(self, run: TopicRun) -> None:
        """Copy this topic from the next step on."""
        self._runs[run.plan.kafka_topic] = run
        self._looked_s = 0.0

    def remove(self, kafka_topic: str) -> None:
        """Copy this topic no more."""
        run = self._runs.pop(kafka_topic)
        run.end()
        self._leave(run)

    def close(self) -> None:
        """Close the clients of Kafka."""
        self._close_reader()
        self._admin.close()

    def step(self) -> None:
        """Read what has come, and append all of it. Raises KafkaFault."""
        if time.monotonic() >= self._asked_s + GAP_S:
            self._begin_again()
        if time.monotonic() >= self._looked_s + LOOK_ALL_S * max(1.0, len(self._runs) / LOOK_TOPICS):
            check_cluster(self._admin, self.cluster_id)  # with nothing to read there is no reader that is interrupted
            self._look([*self._runs.values()])
            self._looked_s = time.monotonic()
        self._begin_due()
        polled_s = time.monotonic()
        fetched = self._fetched()
        if self._is_interrupted(polled_s):
            fetched = []  # Kafka may have lost records and have got others beyond the positions of the reader
            self._begin_again()
        touched = {each.partition.topic: self._runs[each.partition.topic] for each in fetched}
        old = [run for run in touched.values() if time.monotonic() >= run.looked_s + LOOK_S]
        for records in fetched:
            touched[records.partition.topic].take(records)
        self._look(old)
        while self._append([run for run in touched.values() if run.has_waiting]):
            pass
        for run in touched.values():
            run.halt_faulty()
            self._leave(run)
        if time.monotonic() >= self._passed_s + PASS_S:
            self._pass_over()
        if 0 < sum(len(records.offsets) for records in fetched) < FULL_RECORDS:
            time.sleep(max(0.0, polled_s + ROUND_S - time.monotonic()))

    def _is_interrupted(self, polled_s: float) -> bool:
        """Whether Kafka may be another one than before the poll that began then."""
        is_slow = time.monotonic() >= polled_s + GAP_S
        is_first = (
            is_slow and not self._was_slow
        )  # after a slow one the next poll has begun with the last copied records
        self._was_slow, self._asked_s = is_slow, time.monotonic()
        return is_first or (self._reader is not None and self._reader.interruptions != self._interruptions)

    def _look(self, runs: list[TopicRun]) -> None:
        """Ask Kafka for these topics, in one question."""
        if not runs:
            return
        found = self._admin.topics([run.plan.kafka_topic for run in runs])
        is_other = False
        for run in runs:
            try:
                is_other = run.see(found.get(run.plan.kafka_topic)) or is_other
            except (KafkaRefusal, ConfigError) as fault:
                run.fail(fault)
            self._leave(run)
        if is_other:  # what was fetched of the former topic must not pass for records of the other one
            self._begin_again()

    def _begin_due(self) -> None:
        """Begin partitions of some topics: those that are copied already do not wait for all."""
        begun: dict[Partition, int] = {}
        topics = 0
        for run in self._runs.values():
            if wanted := run.due():
                begun |= self._begun(run, wanted)
                topics += 1
            if topics >= BEGIN_TOPICS_MAX:
                break
        if begun and self._reader is not None:
            self._reader.add(begun)
            if not self._waits_long and self._is_large():
                self._close_reader()  # what was fetched and not taken is read again

    def _begin_again(self) -> None:
        """Begin all partitions with their last copied records, by another reader.

        Raises KafkaFault, also where another cluster answers at the address by now: this session's identity is of before.
        """
        check_cluster(self._admin, self.cluster_id)
        for run in self._runs.values():
            run.begin_again()
            self._leave(run)
        self._close_reader()
        self._asked_s = time.monotonic()

    def _is_large(self) -> bool:
        return sum(len(run.positions) for run in self._runs.values()) >= LONG_WAIT_PARTITIONS

    def _begin(self, run: TopicRun, partitions: Iterable[int]) -> None:
        begun = self._begun(run, partitions)
        if begun and self._reader is not None:
            self._reader.add(begun)

    def _begun(self, run: TopicRun, partitions: Iterable[int]) -> dict[Partition, int]:
        """Positions of partitions that are to be read now."""
        try:
            begun = run.begin(partitions, self._bounds)
        except _OF_CLUSTER:
            raise
        except (KafkaFault, ConfigError) as fault:
            run.fail(fault)
            begun = []
        self._leave(run)
        positions = run.positions
        return {each: positions[each] for each in begun}

    def _bounds(self, partitions: Collection[Partition]) -> dict[Partition, PartitionBounds]:
        asked = [*partitions]
        starts, ends = self._admin.offsets(asked, EARLIEST), self._admin.offsets(asked, END)
        return {each: PartitionBounds(starts[each] or 0, ends[each] or 0) for each in asked}

    def _leave(self, run: TopicRun) -> None:
        """Read no more of the partitions that the run does not copy now."""
        left = run.take_unread()
        if left and self._reader is not None:
            self._reader.remove(left)

    def _fetched(self) -> list[Records]:
        """Records that have come of the topics that are copied."""
        if self._reader is None:
            self._open_reader()
        if self._reader is None:
            time.sleep(IDLE_S)
            return []
        try:
            return [each for each in self._reader.poll(POLL_S) if each.partition.topic in self._runs]
        except PositionOutOfRange as fault:
            self._refused(fault.partition.topic, [fault.partition.number])
        except KafkaRefusal as fault:
            if fault.topic not in self._runs:
                raise
            self._runs[fault.topic].fail(fault)
            self._leave(self._runs[fault.topic])
        return []

    def _open_reader(self) -> None:
        """Read all partitions that are copied, from their positions; without one there is no reader."""
        positions = {each: at for run in self._runs.values() for each, at in run.positions.items()}
        if positions:
            self._waits_long = self._is_large()
            wait_s = LONG_WAIT_S if self._waits_long else FETCH_WAIT_S
            self._reader = self._driver.reader(self._connection, ReaderOptions(wait_s=wait_s))
            self._interruptions = self._reader.interruptions
            self._reader.add(positions)

    def _refused(self, topic: str, partitions: list[int]) -> None:
        """Kafka does not have the position of a partition: the topic may be another one, or the position deleted."""
        run = self._runs.get(topic)
        if run is None:
            return
        self._look([run])
        if run.is_open:
            self._begin(run, partitions)

    def _append(self, runs: list[TopicRun]) -> bool:
        """Append one part of each queue of these topics; returns whether there was any."""
        waiting: dict[tuple[str, int], list[tuple[TopicRun, int, CopyPart]]] = {}
        for run in runs:
            for group, parts in run.parts().items():
                kind = group, run.plan.durability
                waiting.setdefault(kind, []).extend((run, queue, part) for queue, part in parts.items())
        for (group, durability), each in waiting.items():
            for request in _requests(each):
                self._send(group, durability, request)
        return bool(waiting)

    def _send(self, group: str, durability: int, sent: list[tuple[TopicRun, int, CopyPart]]) -> None:
        try:
            answers = copied.copy(self._links[group], durability, [part for _, _, part in sent])
        except AdminError as fault:
            topics = {id(run): run for run, _, _ in sent}
            if len(topics) > 1:  # nothing of it is stored: one topic must not hold up the others
                for run in topics.values():
                    self._send(group, durability, [each for each in sent if each[0] is run])
                return
            self._lose(group, sent, fault)
            return
        except ENGINE_FAULTS as fault:
            self._lose(group, sent, fault)
            return
        again: dict[str, list[int]] = {}
        for (run, queue, _), answer in zip(sent, answers, strict=True):
            if run.settle(queue, answer):
                again.setdefault(run.plan.kafka_topic, []).append(queue)
        for topic, queues in again.items():
            limited.info("topic=%s: queues %s expect another offset: asking", self._runs[topic].plan.topic, queues)
            self._begin(self._runs[topic], queues)

    def _lose(self, group: str, sent: list[tuple[TopicRun, int, CopyPart]], fault: Exception) -> None:
        for run, queue, _ in sent:
            run.lose(group, [queue], fault)
            self._leave(run)

    def _pass_over(self) -> None:
        for run in self._runs.values():
            try:
                run.pass_over_deleted(self._bounds)
            except _OF_CLUSTER:
                raise
            except KafkaFault as fault:
                run.fail(fault)
            self._leave(run)
        self._passed_s = time.monotonic()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None


def _requests(
    parts: list[tuple[TopicRun, int, CopyPart]],
) -> Iterable[list[tuple[TopicRun, int, CopyPart]]]:
    """The parts in requests of a bounded size."""
    request: list[tuple[TopicRun, int, CopyPart]] = []
    size = 0
    for each in parts:
        request.append(each)
        size += len(each[2].batch)
        if size >= REQUEST_BYTES_MAX:
            yield request
            request, size = [], 0
    if request:
        yield request

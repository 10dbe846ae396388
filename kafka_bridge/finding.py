"""FIND: searches the records of a Kafka topic since a time for ids. One search at a time, in a thread of its own.

A search reads every record since then, so its cost follows the traffic. The proxy asks after an outage or a crash alone.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from queue import SimpleQueue

from common.config.definitions import KafkaClusterDefinition
from common.config.view import ConfigView
from common.contract import Code
from common.kafka.base import END, KafkaDriver, PartitionReader, ReaderOptions
from common.kafka.errors import ClusterUnreachable, KafkaFault, KafkaRefusal
from common.kafka.records import Partition
from common.limited_log import LimitedLog
from engine.link.codes import OK
from engine.link.find import FindRequest, encode_counts, encode_found
from kafka_bridge.connecting import Connections, connection_of, driver_of
from kafka_bridge.mapping import ID_HEADER

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
SEARCH_S_MAX = 30.0
POLL_S = 0.5
SILENT_S = 5.0
"""Time without progress at the end of a search: it has failed since the cluster does not answer, not for its length."""
WAITING_MAX = 100
READING = ReaderOptions(committed_only=False)

OnFound = Callable[[int, bytes], None]
"""Called once with the code and the payload of the answer."""


class SearchTooLong(KafkaFault):
    """The topic has more records since the time than can be read in SEARCH_S_MAX."""


class Finder:
    """Searches of one bridge. Thread-safe; the thread begins with the first question.

    Args:
        view: names the clusters.
        drivers: by definition; tests pass their own.
        connections: reads the files of a cluster.
    """

    def __init__(
        self, view: ConfigView, drivers: Callable[[KafkaClusterDefinition], KafkaDriver] = driver_of,
        connections: Connections = connection_of,
    ) -> None:  # fmt: skip
        self._view, self._drivers, self._connections = view, drivers, connections
        self._questions: SimpleQueue[tuple[FindRequest, OnFound] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def find(self, request: FindRequest, on_found: OnFound) -> None:
        """Queue a question; it is answered in the searches' thread."""
        if self._questions.qsize() >= WAITING_MAX:
            return on_found(int(Code.OVERLOADED), b"too many searches wait at the Kafka bridge")
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kafka finder", daemon=True)
                self._thread.start()
        self._questions.put((request, on_found))
        return None

    def close(self) -> None:
        """Let the thread end once it has answered."""
        self._questions.put(None)

    def _run(self) -> None:
        while (asked := self._questions.get()) is not None:
            request, on_found = asked
            try:
                found = self._search(request)
                on_found(
                    OK,
                    encode_counts({id_: len(each) for id_, each in found.items()}) if request.is_counted
                    else encode_found({id_: each[0] for id_, each in found.items()}),
                )  # fmt: skip
            except SearchTooLong as fault:
                on_found(int(Code.TOO_LARGE), str(fault).encode())
            except KafkaFault as fault:
                on_found(int(Code.UNAVAILABLE), str(fault).encode())
            except Exception as fault:
                limited.exception("kafka=%s topic=%s: internal error while searching", request.cluster, request.topic)
                on_found(int(Code.UNAVAILABLE), f"internal error: {fault}".encode())

    def _search(self, request: FindRequest) -> dict[str, list[int]]:
        """The partitions of an id's records, by id. Raises KafkaFault."""
        cluster = self._view.kafka_cluster(request.cluster)
        if cluster is None:
            raise KafkaRefusal(0, f'kafka "{request.cluster}": the configuration does not have this cluster')
        driver, connection = self._drivers(cluster), self._connections(cluster)
        with closing(driver.admin(connection)) as admin:
            topic = admin.topics([request.topic]).get(request.topic)
            if topic is None:
                raise KafkaRefusal(3, f'kafka "{request.cluster}" topic "{request.topic}": it does not exist')
            partitions = [Partition(request.topic, number) for number in range(topic.partitions)]
            starts = admin.offsets(partitions, max(0, request.since_ms))
            ends = admin.offsets(partitions, END)
        spans = {
            each: (start, end)
            for each in partitions
            if (start := starts[each]) is not None and (end := ends[each] or 0) > start
        }
        if not spans:
            return {}
        with closing(driver.reader(connection, READING)) as reader:
            return _read(reader, spans, request)


def _read(
    reader: PartitionReader, spans: dict[Partition, tuple[int, int]], request: FindRequest
) -> dict[str, list[int]]:
    """Read each partition up to its end; ends as soon as all ids are found, unless they are counted.

    Raises SearchTooLong, KafkaFault.
    """
    wanted = {each.encode(): each for each in request.ids}
    found: dict[str, list[int]] = {}
    heard = time.monotonic()
    until = heard + SEARCH_S_MAX
    reader.assign({each: start for each, (start, _) in spans.items()})
    before: dict[Partition, int] = {}
    while request.is_counted or len(found) < len(wanted):
        for records in reader.poll(POLL_S):
            for headers in records.headers:
                for name, value in headers:
                    if name == ID_HEADER and value in wanted:
                        found.setdefault(wanted[value], []).append(records.partition.number)
        positions = reader.positions()
        if all(positions.get(each, 0) >= end for each, (_, end) in spans.items()):
            break
        now = time.monotonic()
        if positions != before:
            before, heard = dict(positions), now
        if now > until:
            where = f'kafka "{request.cluster}" topic "{request.topic}"'
            if now - heard > SILENT_S:
                raise ClusterUnreachable(f"{where}: it does not answer a search")
            raise SearchTooLong(f"{where}: the search took too long")
    return found

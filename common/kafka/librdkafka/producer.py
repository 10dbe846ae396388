"""Producers over librdkafka. Each producer has a thread that takes the delivery reports.

`LibrdkafkaProducer` uses confluent-kafka's own producer: one callback per record. `DirectProducer` calls the library that
lies in that package, without an object per record; it has no transactions.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as Library

from common.contract import Code
from common.kafka.base import NO_NOTES, OnResults, ProducerOptions
from common.kafka.callback_relay import within
from common.kafka.connection import KafkaConnection
from common.kafka.errors import ProducerFenced, TransactionAborted
from common.kafka.librdkafka.faults import LOST_SEQUENCE, described, fault_of, outcome_of, translated
from common.kafka.librdkafka.native import LibraryProducer
from common.kafka.librdkafka.options import common_options, opened
from common.kafka.native import PendingBatch, send_each
from common.kafka.pending import GatheringProducer
from common.kafka.records import OutgoingRecords, Partition

log = logging.getLogger("penstock.kafka")
METADATA_WAIT_S = 5.0
MESSAGE_BYTES_MAX = 100 << 20
"""Above what any topic allows, so that the broker decides about sizes."""
POLL_S = 0.1
FATAL_PAUSE_S = 0.02
PURGE_WAIT_S = 2.0
TRANSACTION_TIMEOUT_S, TRANSACTION_S_MAX = 30.0, 40.0
"""The library's own limit for a wait for a coordinator, and the limit of one call of the library."""
COORDINATOR_LOOK_MS, COORDINATOR_IDLE_MS = 3_000, 12_000
"""librdkafka up to 2.16 keeps the coordinator of a group that it has found. After a restart of that broker it waits without a
bound for a client of it that has ended (its issues 5456 and 5511): until any connection changes its state, and only if the
coordinator was forgotten, which takes three intervals of metadata without a question for it. So metadata are asked for often,
and a connection that is idle for longer than that is closed, which ends the wait."""


class LibrdkafkaProducer(GatheringProducer):
    _library: Any = Library

    def __init__(self, connection: KafkaConnection, options: ProducerOptions) -> None:
        super().__init__(connection.name, options)
        self._connection, self._memberships = connection, dict[str, Any]()
        self._is_transactional = bool(options.transactional_id)
        settings = {**common_options(connection), **_library_options(options)}
        self._client, self._last = opened(connection, self._library, settings, lambda client: client.poll(0))
        if options.transactional_id:
            self._transact(lambda client: client.init_transactions(TRANSACTION_TIMEOUT_S))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"kafka-{connection.name}", daemon=True)
        self._thread.start()

    @property
    def fatal_fault(self) -> str:
        return self._last.fatal and f'kafka "{self._cluster}": {self._last.fatal}'

    def _serve(self) -> None:
        while not self._ending.is_set():
            with self._noting_fatal_errors():
                self._client.poll(POLL_S)

    @contextlib.contextmanager
    def _noting_fatal_errors(self) -> Iterator[None]:
        """poll() and flush() raise what is fatal. Delivery reports still come, so their thread must go on.

        Anything else that they raise may have taken the place of a delivery report: 2.16.1 raised a SystemError while
        brokers were killed. So it ends the producer, too, in its owner's good time.
        """
        try:
            yield
        except KafkaException as fault:
            self._last.fatal = self._last.fatal or described(fault.args[0])
            self._ending.wait(FATAL_PAUSE_S)
        except Exception as fault:
            log.exception("kafka=%s: the library failed: the producer is replaced", self._cluster)
            self._last.fatal = self._last.fatal or f"the library failed: {fault}"
            self._ending.wait(FATAL_PAUSE_S)

    def _ask(self, topic: str) -> int:
        with translated(self._cluster):
            found = self._client.list_topics(topic, METADATA_WAIT_S).topics[topic]
        if found.error is not None:
            raise fault_of(self._cluster, found.error, f"topic {topic}: ")
        return len(found.partitions)

    def _skipped(self, records: OutgoingRecords) -> dict[int, tuple[int, str]]:
        """Results of records that are not sent, by index."""
        unknown = self._unknown_topics(records)
        return dict(_unsendable(records, unknown)) if unknown or 0 in records.timestamps else {}

    def _send(self, records: OutgoingRecords, finish: OnResults) -> None:
        pending = PendingBatch(len(records.topics), finish)

        def on_fault(index: int, fault: Exception) -> None:
            if isinstance(fault, BufferError):
                pending.refuse(index, *self._overloaded)
            elif isinstance(fault, KafkaException):
                pending.refuse(index, *outcome_of(fault.args[0]))
            else:
                raise fault

        send_each(self._client.produce, records, pending, self._skipped(records), self._outcome, on_fault)

    def _outcome(self, error: KafkaError) -> tuple[int, str]:
        """Code and sentence of a record that failed. A broker that lacks what it had confirmed refuses this producer for ever."""
        if error.code() in LOST_SEQUENCE:
            self._last.fatal = self._last.fatal or described(error)
        return outcome_of(error)

    def flush(self, timeout_s: float) -> bool:
        ends = time.monotonic() + timeout_s
        with self._noting_fatal_errors():
            self._client.flush(timeout_s)
        return self._outstanding.wait_until_none(ends - time.monotonic())

    def begin(self) -> None:
        self._transact(lambda client: client.begin_transaction())

    def commit(self, positions: Mapping[Partition, int], group: str, notes: Mapping[Partition, str] = NO_NOTES) -> None:
        def commit(client: Any) -> None:
            if positions:
                offsets = [TopicPartition(*each, at, notes.get(each, "")) for each, at in positions.items()]
                client.send_offsets_to_transaction(offsets, self._membership(group), TRANSACTION_TIMEOUT_S)
            client.commit_transaction(TRANSACTION_TIMEOUT_S)

        self._transact(commit)

    def _membership(self, group: str) -> Any:
        """The library takes a group only as a consumer's; this one never joins it, so what it says stays true."""
        if group not in self._memberships:
            consumer = Consumer({**common_options(self._connection), "group.id": group})
            try:
                self._memberships[group] = consumer.consumer_group_metadata()
            finally:
                consumer.close()
        return self._memberships[group]

    def abort(self) -> None:
        self._transact(lambda client: client.abort_transaction(TRANSACTION_TIMEOUT_S))

    def _transact(self, call: Callable[[Any], object]) -> None:
        """One step of a transaction. Where it does not end in time, this producer is of no use any more."""
        client = self._client
        try:
            within(TRANSACTION_S_MAX, lambda: call(client), f"kafka-{self._cluster} transaction")
        except TimeoutError as fault:
            self._last.fatal = self._last.fatal or f"a transaction: {fault}"
            raise TransactionAborted(f'kafka "{self._cluster}": a transaction: {fault}') from None
        except KafkaException as fault:
            ours = fault_of(self._cluster, fault.args[0])
            if isinstance(ours, ProducerFenced):
                self._last.fatal = self._last.fatal or described(fault.args[0])
                raise ours from fault
            raise TransactionAborted(str(ours)) from fault

    def close(self, timeout_s: float) -> None:
        if self._ending.is_set():
            return
        self.flush(timeout_s)
        with self._noting_fatal_errors():
            self._client.purge()
        self._outstanding.wait_until_none(PURGE_WAIT_S)
        self._ending.set()
        self._thread.join()
        if self._is_transactional:
            # The library's threads end with its object. This one is part of a cycle, so they would wait for the collector.
            self._memberships.clear()
            del self._client


class DirectProducer(LibrdkafkaProducer):
    _library = LibraryProducer

    def _ask(self, topic: str) -> int:
        count, error = self._client.partition_count(topic, METADATA_WAIT_S)
        if error is not None:
            raise fault_of(self._cluster, error, f"topic {topic}: ")
        return count

    def _send(self, records: OutgoingRecords, finish: OnResults) -> None:
        def outcome(error: KafkaError) -> tuple[int, str]:
            return self._overloaded if error.code() == KafkaError._QUEUE_FULL else self._outcome(error)

        self._client.send(records, finish, outcome, self._skipped(records))


def _unsendable(records: OutgoingRecords, unknown: Mapping[str, str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """Results of records that the library would not send, or not as they are, by index."""
    for index, (topic, timestamp) in enumerate(zip(records.topics, records.timestamps, strict=True)):
        if topic in unknown:
            yield index, (int(Code.UNAVAILABLE), unknown[topic])
        elif not timestamp:
            yield index, (int(Code.INVALID), "a timestamp of 0, which confluent-kafka would take as now")


def _library_options(options: ProducerOptions) -> dict[str, Any]:
    transactional: dict[str, Any] = {
        "transactional.id": options.transactional_id,
        "topic.metadata.refresh.interval.ms": COORDINATOR_LOOK_MS,
        "connections.max.idle.ms": COORDINATOR_IDLE_MS,
    }
    return {
        "acks": "all",
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 5,
        "delivery.timeout.ms": int(options.delivery_timeout_s * 1000),
        "request.timeout.ms": int(options.request_timeout_s * 1000),
        "socket.timeout.ms": int(options.request_timeout_s * 1000) + 1000,
        "linger.ms": options.linger_ms,
        "batch.size": 64 << 10,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": max(options.pending_bytes_max >> 9, 1 << 18),
        **(transactional if options.transactional_id else {}),
    }

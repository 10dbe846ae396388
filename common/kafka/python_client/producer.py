"""Producer over kafka-python. The library has a thread that sends and one future per record."""

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from kafka import KafkaProducer as Library
from kafka import errors
from kafka.serializer import Serializer
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from common.contract import Code
from common.kafka.base import METADATA_AGE_S, NO_NOTES, OnResults, ProducerOptions
from common.kafka.connection import KafkaConnection
from common.kafka.errors import ProducerFenced, TransactionAborted
from common.kafka.native import PendingBatch
from common.kafka.pending import GatheringProducer
from common.kafka.python_client.admin import PythonAdmin
from common.kafka.python_client.faults import described, fault_of, outcome_after_send, outcome_of_send, translated
from common.kafka.python_client.mended import (
    bound_transactions,
    fatal_error,
    force_close,
    recover_from_failed_batches,
)
from common.kafka.python_client.options import common_options, opened
from common.kafka.records import OutgoingRecords, Partition

METADATA_WAIT_MS = 5_000
STALL_GRACE_S = 5.0
MESSAGE_BYTES_MAX = 100 << 20
"""Above what any topic allows, so that the broker decides about sizes."""


class _NullValues(Serializer):
    """Turns a marker into null: send() itself refuses records whose key and value are both null."""

    NULL = object()

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        return None if data is self.NULL else data


class PythonProducer(GatheringProducer):
    writes_null_headers = False

    def __init__(self, connection: KafkaConnection, options: ProducerOptions) -> None:
        super().__init__(connection.name, options)
        self._connection = connection
        self._stalled_s_max = options.delivery_timeout_s + options.request_timeout_s + STALL_GRACE_S
        self._admin: PythonAdmin | None = None
        self._closing = threading.Lock()
        self._client = opened(connection, Library, {**common_options(connection), **_library_options(options)})
        if not options.transactional_id:
            recover_from_failed_batches(self._client)
            return
        bound_transactions(self._client)
        with self._transactional():
            self._client.init_transactions()

    @property
    def fatal_fault(self) -> str:
        fault = fatal_error(self._client)
        if fault is not None:
            return f'kafka "{self._cluster}": {described(fault)}'
        # After a hanging broker the library may wait for ever for a producer id, and expires nothing meanwhile.
        if (stalled_s := self.stalled_s) < self._stalled_s_max:
            return ""
        return f'kafka "{self._cluster}": the producer has given no result for {stalled_s:.0f} s'

    def _ask(self, topic: str) -> int:
        """By an admin client first: the producer itself would wait for a topic that does not exist."""
        with translated(self._cluster):
            if self._admin is None:
                self._admin = PythonAdmin(self._connection)
            count = self._admin.partition_count(topic)
            self._client.partitions_for(topic)
            return count

    def _send(self, records: OutgoingRecords, finish: OnResults) -> None:
        pending = PendingBatch(len(records.topics), finish)
        unknown = self._unknown_topics(records)
        send, on_stored, on_fault = self._client.send, pending.stored_as, pending.failed
        for index, (topic, partition, timestamp, key, value, headers) in enumerate(zip(*records, strict=True)):
            if unknown and topic in unknown:
                pending.refuse(index, int(Code.UNAVAILABLE), unknown[topic])
                continue
            if value is None and key is None:
                value = _NullValues.NULL
            try:
                future = send(topic, value, key, headers if type(headers) is list else [*headers], partition, timestamp)
            except (errors.KafkaError, ValueError, TypeError, AssertionError) as fault:
                if isinstance(fault, errors.KafkaTimeoutError):  # its metadata are gone: once is enough to wait
                    self._counts.forget(topic)
                    unknown[topic] = str(fault)
                pending.refuse(index, *outcome_of_send(fault))
                continue
            future.add_callback(on_stored, index)
            future.add_errback(on_fault, self._outcome, index)

    def _outcome(self, fault: BaseException) -> tuple[int, str]:
        if fatal_error(self._client) is not None:  # fails all records alike, those in flight, too
            return int(Code.TIMEOUT), described(fault)
        return outcome_after_send(fault)

    def flush(self, timeout_s: float) -> bool:
        ends = time.monotonic() + timeout_s
        with contextlib.suppress(errors.KafkaTimeoutError):
            self._client.flush(timeout_s)
        return self._outstanding.wait_until_none(ends - time.monotonic())

    def begin(self) -> None:
        with self._transactional():
            self._client.begin_transaction()

    def commit(self, positions: Mapping[Partition, int], group: str, notes: Mapping[Partition, str] = NO_NOTES) -> None:
        with self._transactional():
            if positions:
                offsets = {
                    TopicPartition(*each): OffsetAndMetadata(at, notes.get(each, ""), -1)
                    for each, at in positions.items()
                }
                self._client.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))
            self._client.commit_transaction()

    def abort(self) -> None:
        with self._transactional():
            self._client.abort_transaction()

    @contextlib.contextmanager
    def _transactional(self) -> Any:
        try:
            yield
        except errors.KafkaError as fault:
            translated_fault = fault_of(self._cluster, fault)
            if isinstance(translated_fault, ProducerFenced):
                raise translated_fault from fault
            raise TransactionAborted(str(translated_fault)) from fault

    def close(self, timeout_s: float) -> None:
        with self._closing:
            try:
                self._client.close(timeout_s)
            except errors.KafkaTimeoutError:
                force_close(self._client)
            if self._admin is not None:
                self._admin.close()
                self._admin = None


def _library_options(options: ProducerOptions) -> dict[str, Any]:
    transactional = {"transactional_id": options.transactional_id} if options.transactional_id else {}
    return {
        "acks": "all",
        "enable_idempotence": True,
        "max_in_flight_requests_per_connection": 5,
        "delivery_timeout_ms": int(options.delivery_timeout_s * 1000),
        "request_timeout_ms": int(options.request_timeout_s * 1000),
        "linger_ms": options.linger_ms,
        "batch_size": 64 << 10,
        "max_request_size": MESSAGE_BYTES_MAX,
        "max_block_ms": METADATA_WAIT_MS,
        "metadata_max_age_ms": int(METADATA_AGE_S * 1000),
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
        "value_serializer": _NullValues(),
        **transactional,
    }

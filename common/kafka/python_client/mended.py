"""Mends of kafka-python 3.0.12, by its internals; the contract test and the benchmark show that each is needed.

- One refused batch ends the idempotent producer: after a record that is too large, all others fail with the same error,
  those in flight, too. Java's producer fails the batch alone and gives its sequence numbers to the next one.
- After a batch whose delivery time ended between two tries, the producer gives its id back and never asks for another:
  it sends nothing more, and nothing expires.
- close() raises, and leaves the producer running, where not all could be sent in time.
- A member that joins again because topics or partitions have changed, and whose join ends between two calls of poll(),
  takes the join as done: it never gets its partitions, and falls out of the group.
- A group's first member does not know the partitions when it joins, so it joins once more as soon as it does.
- Each poll() of a consumer compares the leader epochs of all its partitions, though only new metadata change them: 6 ms
  for 2,000 partitions.
- The calls of a transaction, and questions for all topics, wait for their answer without a bound.
- Checksums are computed in Python, 150 ns per byte, unless a package under the LGPL is installed.
"""

from collections.abc import Callable
from typing import Any

import google_crc32c
from kafka import KafkaConsumer, KafkaProducer, errors
from kafka.producer.transaction_manager import TransactionManager
from kafka.record import default_records

from common.contract import Code
from common.kafka.codes import code_of

FORCED_CLOSE_S = 5.0
ANSWER_MS_MAX = 40_000
"""Above what a library's request takes by its own options, with its tries."""


def use_native_checksums() -> None:
    default_records.calc_crc32c = lambda view: google_crc32c.value(bytes(view))


def recover_from_failed_batches(producer: KafkaProducer) -> None:
    """Change what a refused or an expired batch does to a producer that is idempotent and not transactional."""
    manager = producer._transaction_manager
    original = manager.classify_batch_error

    def classify(error: Any, batch: Any, log_start_offset: int = -1) -> Any:
        found = original(error, batch, log_start_offset)
        kind: Any = error if isinstance(error, type) else type(error)
        if found != TransactionManager.ERROR_CLASS_FATAL or kind in TransactionManager._FATAL_ERRORS:
            return found
        if not issubclass(kind, errors.BrokerResponseError) or code_of(kind.errno) == Code.TIMEOUT:
            # The batch may be stored, so its numbers are used up: a new epoch begins with new ones.
            return TransactionManager.ERROR_CLASS_NEEDS_EPOCH_BUMP
        # One batch per partition is in flight, so the next one can take the numbers of this one, which is not stored.
        manager.set_sequence_number(batch.topic_partition, batch.records.base_sequence)
        return TransactionManager.ERROR_CLASS_RETRIABLE

    manager.classify_batch_error = classify
    manager.reset_producer_id = manager.bump_producer_id_and_epoch


def mend_joins(consumer: KafkaConsumer) -> None:
    """Let a member of a group join once, and to the end. To be called after subscribe(), with known topics."""
    coordinator = consumer._coordinator
    coordinator._metadata_snapshot = coordinator._build_metadata_snapshot(consumer._subscription, consumer._cluster)
    original = coordinator.need_rejoin
    coordinator.need_rejoin = lambda: original() or coordinator.rejoining


def validate_after_metadata(consumer: KafkaConsumer) -> None:
    """Let a consumer compare the epochs of its partitions' leaders once per answer with metadata."""
    fetcher, cluster = consumer._fetcher, consumer._fetcher._manager.cluster
    original, compared = fetcher.maybe_validate_positions, [-1]

    def validate() -> None:
        if compared[0] != (refreshed := cluster._last_successful_refresh_ms):
            compared[0] = refreshed
            original()

    fetcher.maybe_validate_positions = validate


def bound_transactions(producer: KafkaProducer) -> None:
    """Let the calls of a transaction raise KafkaTimeoutError where they have no answer in time."""
    manager = producer._transaction_manager
    for name in ("send_offsets_to_transaction", "begin_commit", "begin_abort"):
        setattr(manager, name, _bounded_result(getattr(manager, name)))


def _bounded_result(begin: Callable[..., Any]) -> Callable[..., Any]:
    def begun(*arguments: Any) -> Any:
        result = begin(*arguments)
        wait = result.wait

        def bounded(timeout_ms: int | None = None) -> bool:
            if not wait(ANSWER_MS_MAX if timeout_ms is None else timeout_ms):
                raise errors.KafkaTimeoutError(f"a transaction: no answer within {ANSWER_MS_MAX // 1000} s")
            return True

        result.wait = bounded
        return result

    return begun


def bound_questions(consumer: KafkaConsumer) -> None:
    """Let a consumer's questions raise KafkaTimeoutError where they have no answer in time."""
    manager = consumer._manager
    wait_for = manager.wait_for

    def bounded(future: Any, timeout_ms: float | None) -> Any:
        return wait_for(future, ANSWER_MS_MAX if timeout_ms is None else timeout_ms)

    manager.wait_for = bounded


def fatal_error(producer: KafkaProducer) -> Exception | None:
    """The error after which the producer refuses everything."""
    manager = producer._transaction_manager
    return manager.last_error if manager.has_fatal_error() else None


def force_close(producer: KafkaProducer) -> None:
    """End a producer that close() could not: all records get their results."""
    producer._sender.force_close()
    producer._sender.join(FORCED_CLOSE_S)
    producer.close(timeout=0)

"""Mends of kafka-python 3.0.12's producer, by its internals; the contract test shows that each is needed.

The library treats every refusal of a batch as the end of the producer: after one record that is too large, all others
fail with the same error, those in flight, too. Java's producer fails the batch alone and gives its sequence numbers to
the next one.

Its close() raises, and leaves the producer running, where not all could be sent in time.
"""

from typing import Any

from kafka import KafkaProducer, errors
from kafka.producer.transaction_manager import TransactionManager

from common.contract import Code
from common.kafka.codes import code_of

FORCED_CLOSE_S = 5.0


def fail_batches_alone(producer: KafkaProducer) -> None:
    """Change what a refused batch does to a producer that is idempotent and not transactional."""
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


def fatal_error(producer: KafkaProducer) -> Exception | None:
    """The error after which the producer refuses everything."""
    manager = producer._transaction_manager
    return manager.last_error if manager.has_fatal_error() else None


def force_close(producer: KafkaProducer) -> None:
    """End a producer that close() could not: all records get their results."""
    producer._sender.force_close()
    producer._sender.join(FORCED_CLOSE_S)
    producer.close(timeout=0)

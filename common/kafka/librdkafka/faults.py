"""librdkafka's errors as result codes of records and as our errors. Positive numbers are Kafka's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from common.contract import Code
from common.kafka.codes import code_of
from common.kafka.errors import ClusterUnreachable, KafkaFault, KafkaRefusal, LoginRefused, ProducerFenced

_LOCAL = {
    KafkaError._UNKNOWN_TOPIC: Code.UNAVAILABLE,
    KafkaError._UNKNOWN_PARTITION: Code.UNAVAILABLE,
    KafkaError._PURGE_QUEUE: Code.UNAVAILABLE,  # dropped before it was sent
    KafkaError._TIMED_OUT_QUEUE: Code.UNAVAILABLE,
    KafkaError._INVALID_DIFFERENT_RECORD: Code.UNAVAILABLE,  # Kafka stores a batch as a whole or not
    KafkaError._AUTHENTICATION: Code.UNAVAILABLE,
    KafkaError._SSL: Code.UNAVAILABLE,
    KafkaError._QUEUE_FULL: Code.OVERLOADED,
    KafkaError._INVALID_ARG: Code.INVALID,
}
"""Errors without an answer of a broker. All others are TIMEOUT."""

COORDINATOR_MOVES = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_UNREACHABLE = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    *COORDINATOR_MOVES,
)
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
_UNKNOWN = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError._NOENT)
LOST_SEQUENCE = (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID)
"""A partition has not the records of an idempotent producer that it had confirmed: the broker was put back, or an election was
unclean. The library counts on, so each further record is refused."""
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def outcome_of(error: KafkaError) -> tuple[int, str]:
    """Code and sentence of a record.

    The sentence is made from the number: for a record that was not stored, the library takes its value for the error's
    text (`rd_kafka_message_errstr`), and reads on up to the next zero byte.
    """
    number = error.code()
    told = described(KafkaError(number))
    code = code_of(number) if number >= 0 else int(_LOCAL.get(number, Code.TIMEOUT))
    if number > 0 and code == Code.INVALID:
        # Kafka names the records that are invalid; the library passes only the error of their batch on.
        return code, f"this record or one that was sent with it: {told}"
    return code, told


def described(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"


@contextmanager
def translated(cluster: str) -> Iterator[None]:
    """Raise our errors in place of the library's."""
    try:
        yield
    except KafkaException as fault:
        raise fault_of(cluster, fault.args[0]) from fault


def fault_of(cluster: str, error: KafkaError, what: str = "", topic: str = "") -> KafkaFault:
    sentence = f'kafka "{cluster}": {what}{described(error)}'
    number = error.code()
    if number in _FENCED:
        return ProducerFenced(sentence)
    if number in _LOGIN:
        return LoginRefused(sentence)
    if number in _UNREACHABLE:
        return ClusterUnreachable(sentence)
    if number in _UNKNOWN:
        return KafkaRefusal(KafkaError.UNKNOWN_TOPIC_OR_PART, sentence, topic)
    return KafkaRefusal(number, sentence, topic) if number > 0 else KafkaFault(sentence)

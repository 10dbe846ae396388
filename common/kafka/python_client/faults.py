"""kafka-python's exceptions as result codes of records and as our errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

from common.contract import Code
from common.kafka.codes import SASL_AUTHENTICATION_FAILED, code_of
from common.kafka.errors import (
    ClusterUnreachable,
    KafkaFault,
    KafkaRefusal,
    LoginRefused,
    PositionOutOfRange,
    ProducerFenced,
)
from common.kafka.records import Partition

_UNREACHABLE = (errors.KafkaTimeoutError, errors.KafkaConnectionError, errors.NodeNotReadyError)
_FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError)


def outcome_after_send(fault: BaseException) -> tuple[int, str]:
    """Code and sentence of a record that was handed to the library."""
    if isinstance(fault, errors.BrokerResponseError):
        return code_of(fault.errno), described(fault)
    # Kafka stores a batch as a whole; the library has no error of its own for the neighbours of an invalid record.
    neighbour = type(fault) is errors.KafkaError and "part of a batch" in str(fault)
    return int(Code.UNAVAILABLE if neighbour else Code.TIMEOUT), described(fault)


def outcome_of_send(fault: Exception) -> tuple[int, str]:
    """Code and sentence of a record that the library's send() did not take: it is not stored."""
    if isinstance(fault, errors.BrokerResponseError):
        code = code_of(fault.errno)
        return (code if code != Code.TIMEOUT else int(Code.UNAVAILABLE)), described(fault)
    if isinstance(fault, TypeError):
        return int(Code.INVALID), "a header's value is null, which kafka-python cannot write: use confluent-kafka"
    return int(Code.UNAVAILABLE), described(fault)


def described(fault: BaseException) -> str:
    """Kafka's name of an error, and its text."""
    if isinstance(fault, errors.BrokerResponseError):
        text = " ".join(map(str, fault.args)) or fault.description or ""
        return f"{fault.message}: {text}".rstrip(": ")
    return str(fault)


@contextmanager
def translated(cluster: str) -> Iterator[None]:
    """Raise our errors in place of the library's."""
    try:
        yield
    except errors.KafkaError as fault:
        raise fault_of(cluster, fault) from fault


def fault_of(cluster: str, fault: Exception) -> KafkaFault:
    sentence = f'kafka "{cluster}": {described(fault)}'
    if isinstance(fault, errors.OffsetOutOfRangeError) and fault.args and isinstance(fault.args[0], dict):
        ((topic, number), offset) = next(iter(fault.args[0].items()))
        return PositionOutOfRange(
            Partition(topic, number), f'kafka "{cluster}": {topic} {number}: there is no offset {offset} (any more)'
        )
    if isinstance(fault, _FENCED):
        return ProducerFenced(sentence)
    if isinstance(fault, errors.BrokerResponseError) and fault.errno == SASL_AUTHENTICATION_FAILED:
        return LoginRefused(sentence)
    if isinstance(fault, errors.BrokerResponseError) and fault.errno is not None and fault.errno > 0:
        return KafkaRefusal(fault.errno, sentence, _topic_of(fault))
    if isinstance(fault, _UNREACHABLE):
        return ClusterUnreachable(sentence)
    return KafkaFault(sentence)


def fault_of_text(cluster: str, text: str) -> KafkaFault:
    """As `fault_of`, of an error that the library passes on as text alone: `[Error 30] NAME: TEXT`."""
    number = re.match(r"\[Error (\d+)\]", text)
    return fault_of(cluster, errors.for_code(int(number[1]))()) if number else KafkaFault(f'kafka "{cluster}": {text}')


def _topic_of(fault: errors.BrokerResponseError) -> str:
    """The only topic that the library names, as it does where the user may not read one; else empty."""
    named = fault.args[0] if fault.args else None
    return str(next(iter(named))) if isinstance(named, set | frozenset) and len(named) == 1 else ""

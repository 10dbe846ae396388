"""Errors of Kafka clusters and their drivers.

PenstockError
└── KafkaFault              code 203   base; the sentence names the cluster
    ├── DriverMissing                  no Kafka client library is installed
    ├── ClusterUnreachable             no broker of the cluster answered in time
    ├── LoginRefused                   wrong user or password, or TLS failed
    ├── KafkaRefusal                   a broker refused a request; `number` is Kafka's
    ├── PositionOutOfRange             a position that a partition does not have (any more)
    ├── TransactionAborted             the transaction has failed: open another producer
    └── ProducerFenced                 another producer has taken over the transactional id
"""

from common.errors import PenstockError
from common.kafka.records import Partition


class KafkaFault(PenstockError):
    """Base of all errors that come from a Kafka cluster or from the way to it."""


class DriverMissing(KafkaFault):
    """No Kafka client library is installed, or not the one that was asked for."""


class ClusterUnreachable(KafkaFault):
    """No broker answered in time. Retriable."""


class LoginRefused(KafkaFault):
    """Authentication or TLS failed. Not retriable before an operator or the cluster changes something."""


class KafkaRefusal(KafkaFault):
    """A broker refused a request.

    Args:
        number: Kafka's error code, such as 3 (UNKNOWN_TOPIC_OR_PARTITION).
        topic: the only topic that it concerns; empty: it is not known.
    """

    def __init__(self, number: int, sentence: str, topic: str = "") -> None:
        super().__init__(sentence)
        self.number, self.topic = number, topic


class PositionOutOfRange(KafkaFault):
    """A reader's position is below the start or above the end of its partition."""

    code = 107

    def __init__(self, partition: Partition, sentence: str) -> None:
        super().__init__(sentence)
        self.partition = partition


class TransactionAborted(KafkaFault):
    """The transaction has failed; readers of committed records will not see it. Close its producer, then retry."""


class ProducerFenced(KafkaFault):
    """A newer producer has the transactional id; this one cannot write any more."""

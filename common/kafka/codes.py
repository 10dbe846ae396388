"""Result codes for Kafka's errors (docs/design/0034-kafka.md, "Send"). Both drivers use Kafka's own numbers.

The question is whether the record may be stored. UNAVAILABLE says that it is not, so a caller may send it elsewhere.
An unknown error is TIMEOUT.
"""

from common.contract import Code

UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_ENOUGH_REPLICAS = 19
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
SASL_AUTHENTICATION_FAILED = 58
TOO_LARGE_FOR_TOPIC = 10
OFFSET_OUT_OF_RANGE = 1
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
UNSUPPORTED_VERSION = 35
FENCED_INSTANCE_ID = 82
FENCED_MEMBER_EPOCH = 110

_TOO_LARGE = (TOO_LARGE_FOR_TOPIC, 18)  # 18 RECORD_LIST_TOO_LARGE
_INVALID = (
    32,  # INVALID_TIMESTAMP
    43,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44,  # POLICY_VIOLATION
    76,  # UNSUPPORTED_COMPRESSION_TYPE
    87,  # INVALID_RECORD: such as a record without a key in a compacted topic
)
_NOT_STORED = (
    2,  # CORRUPT_MESSAGE: the checksum is compared before the append
    UNKNOWN_TOPIC_OR_PARTITION,
    5,  # LEADER_NOT_AVAILABLE
    6,  # NOT_LEADER_OR_FOLLOWER
    9,  # REPLICA_NOT_AVAILABLE
    17,  # INVALID_TOPIC_EXCEPTION
    NOT_ENOUGH_REPLICAS,
    TOPIC_AUTHORIZATION_FAILED,
    31,  # CLUSTER_AUTHORIZATION_FAILED
    33,  # UNSUPPORTED_SASL_MECHANISM
    34,  # ILLEGAL_SASL_STATE
    53,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    56,  # KAFKA_STORAGE_ERROR
    SASL_AUTHENTICATION_FAILED,
    74,  # FENCED_LEADER_EPOCH
    75,  # UNKNOWN_LEADER_EPOCH
    100,  # UNKNOWN_TOPIC_ID
    103,  # INCONSISTENT_TOPIC_ID
)
_OVERLOADED = (89,)  # THROTTLING_QUOTA_EXCEEDED

_BY_NUMBER = {
    **dict.fromkeys(_TOO_LARGE, int(Code.TOO_LARGE)),
    **dict.fromkeys(_INVALID, int(Code.INVALID)),
    **dict.fromkeys(_NOT_STORED, int(Code.UNAVAILABLE)),
    **dict.fromkeys(_OVERLOADED, int(Code.OVERLOADED)),
    0: int(Code.OK),
}


def code_of(number: int) -> int:
    """The result code of a record for the error by which Kafka answered its batch."""
    return _BY_NUMBER.get(number, int(Code.TIMEOUT))

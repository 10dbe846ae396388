"""The queue of a key: Kafka's murmur2, so that a key keeps its partition number when its topic moves here.

Source of the algorithm and of the test vectors: org.apache.kafka.common.utils.Utils.murmur2 and its UtilsTest.
"""

from common.wire import murmur2

__all__ = ["murmur2", "queue_of"]


def queue_of(key: bytes, queues: int) -> int:
    """The queue, 0..queues - 1, of all messages with this key (its UTF-8 bytes)."""
    return (murmur2(key) & 0x7FFFFFFF) % queues

"""The queue of a key: Kafka's murmur2, so that a key keeps its partition number when its topic moves here.

Source of the algorithm and of the test vectors: org.apache.kafka.common.utils.Utils.murmur2 and its UtilsTest.
"""

from collections.abc import Sequence

from common.wire import murmur2

__all__ = ["murmur2", "queue_now", "queue_of"]


def queue_of(key: bytes, queues: int) -> int:
    """The queue, 0..queues - 1, of all messages with this key (its UTF-8 bytes)."""
    return (murmur2(key) & 0x7FFFFFFF) % queues


def queue_now(key: bytes, queue: int, before: Sequence[int], queues: int) -> int:
    """The queue of a key today, of a message that was for `queue` when it was sent.

    A message that came to its queue by another rule than its key stays there.

    Args:
        before: the former numbers of queues of the topic.
    """
    return queue_of(key, queues) if any(queue_of(key, number) == queue for number in before) else queue

"""Largest messages: what the engine takes must fit into Kafka, or the copy back stops at it and a rollback waits for ever.

Kafka bounds a whole batch by `max.message.bytes`, and a topic here bounds the body alone by `body_bytes_max`.
"""

from common.config.definitions import TopicDefinition
from common.quoting import quoted
from migration.inventory import FoundTopic

BESIDE_BODY_BYTES = 68 << 10
"""A message's fields beside the body (64 KiB at most), our headers, and what Kafka adds to a record and a batch."""
MESSAGE_BYTES_MIN = 2 * BESIDE_BODY_BYTES
MESSAGE_SIZE = "message-size"
"""The gate's name, for --accept."""


def body_bytes_fitting(message_bytes_max: int) -> int:
    """The `body_bytes_max` of a topic that a plan creates, for a topic of Kafka with this bound (−1: it is unknown).

    At most the default. Below MESSAGE_BYTES_MIN, which the gate refuses, half of the bound: that may be too much.
    """
    default = TopicDefinition.body_bytes_max
    if message_bytes_max < 0:
        return default
    return min(default, max(1, message_bytes_max // 2, message_bytes_max - BESIDE_BODY_BYTES))


def size_faults(found: FoundTopic, entry: TopicDefinition | None) -> list[str]:
    """Why a message that the engine takes may be too large for Kafka, one sentence each."""
    bound, accept = found.message_bytes_max, f"or use --accept {MESSAGE_SIZE}"
    if bound < 0:
        return []
    if bound < MESSAGE_BYTES_MIN:
        return [
            f"max.message.bytes is {bound:,}: a message has up to {BESIDE_BODY_BYTES:,} bytes beside its body, so the copy "
            f"back to Kafka may stop at one: set it to {MESSAGE_BYTES_MIN:,} or more, {accept}"
        ]
    fitting = body_bytes_fitting(bound)
    if entry is None or entry.body_bytes_max <= fitting:
        return []
    return [
        f"bodies of {quoted(found.name)} may have {entry.body_bytes_max:,} bytes here, and max.message.bytes is {bound:,} "
        f"in Kafka: the copy back would stop at a larger one: set body_bytes_max to {fitting:,} or less, set "
        f"max.message.bytes to {entry.body_bytes_max + BESIDE_BODY_BYTES:,} or more, {accept}"
    ]

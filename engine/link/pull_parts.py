"""The parts of a PULL request that repeat: topics, which are only measured, and acknowledgement ranges.

The reference of `_pull_parts.pyx`.
"""

from engine.link.acknowledgement import ACK, AckRange

TOPIC_SIZE_MIN = 6
"""Size of the name ‖ name ‖ queues."""


def topics_end(payload: bytes, at: int, count: int) -> int:
    """Position after the `count` topics that begin at `at`; -1 when they run past the end."""
    for _ in range(count):
        if len(payload) - at < TOPIC_SIZE_MIN:
            return -1
        at += payload[at] + (payload[at + 1] << 8) + TOPIC_SIZE_MIN
    return at if at <= len(payload) else -1


def read_acks(payload: bytes, at: int, count: int) -> list[AckRange] | None:
    """The `count` ranges from `at` on; None unless they end where the payload does."""
    acks = []
    for _ in range(count):
        if len(payload) - at < ACK.size:
            return None
        token, first, messages, verdict, delay_ms, reason_size = ACK.unpack_from(payload, at)
        at += ACK.size + reason_size
        acks.append(AckRange(token, first, messages, verdict, delay_ms, payload[at - reason_size : at]))
    return acks if at == len(payload) else None

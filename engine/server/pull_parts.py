"""PULL's two parts that repeat: the topics, which are only measured, and the acknowledgements. The twin of `_pull_parts.pyx`."""

from engine.delivery.pull import AckRange
from engine.link.layout import ACK

_TOPIC_LEAST = 6


def topics_end(payload: bytes, at: int, count: int) -> int:
    """Where the `count` topics end that begin at `at`; -1 when they run past the end."""
    for _ in range(count):
        if len(payload) - at < _TOPIC_LEAST:
            return -1
        at += payload[at] + (payload[at + 1] << 8) + _TOPIC_LEAST
    return at if at <= len(payload) else -1


def read_acks(payload: bytes, at: int, count: int) -> list[AckRange] | None:
    """The `count` acknowledgements from `at` on, which have to end where the payload does; None when they do not."""
    acks = []
    for _ in range(count):
        if len(payload) - at < ACK.size:
            return None
        token, first, messages, verdict, delay_ms, reason_size = ACK.unpack_from(payload, at)
        at += ACK.size + reason_size
        acks.append(AckRange(token, first, messages, verdict, delay_ms, payload[at - reason_size : at]))
    return acks if at == len(payload) else None

"""Results of a walk for Python, field for field the C structs of `_walk.pxd`, which document them.

They hold offsets into the frame, and keep it alive; properties return slices. When `fault` is not 0, only `fault`,
`start` and `size` are valid.
"""

from dataclasses import dataclass, field
from typing import Any

HAS_TOPIC, HAS_BODY, HAS_KEY, HAS_TAG, HAS_PROPERTIES = 1, 2, 4, 8, 16
HAS_ID, HAS_DELIVER_AT, HAS_DELAY, HAS_OPERATION, HAS_REPLY_TO, HAS_LOOP = 32, 64, 128, 256, 512, 1024
HAS_TOPICS, HAS_ACKS, HAS_POSITIONS, HAS_INVISIBLE, HAS_TOPICS_AFTER = 1, 2, 4, 8, 16
HAS_RECEIPT, HAS_VERDICT, HAS_ACK_DELAY, HAS_REASON = 1, 2, 4, 8

MESSAGES_MAX = 1000
PULL_TOPICS_MAX = 256
POSITIONS_MAX = 1000
ACKS_MAX = 10_000
BODY_BYTES_MAX = 4 * 1024 * 1024


def _slice(start_name: str, size_name: str):
    return property(lambda self: self.frame[(at := getattr(self, start_name)) : at + getattr(self, size_name)])


def _text(start_name: str, size_name: str, flag: int):
    """Return a property: the str, or None when its flag is not set."""

    def read(self) -> str | None:
        if not self.flags & flag:
            return None
        at = getattr(self, start_name)
        return self.frame[at : at + getattr(self, size_name)].decode()

    return property(read)


@dataclass(slots=True)
class Message:
    """One message of a send; `encoded` is its stored form."""

    frame: bytes = field(repr=False, compare=False)
    start: int
    size: int = 0
    flags: int = 0
    fault: int = 0
    topic_start: int = 0
    topic_size: int = 0
    body_start: int = 0
    body_size: int = 0
    key_start: int = 0
    key_size: int = 0
    tag_start: int = 0
    tag_size: int = 0
    id_start: int = 0
    id_size: int = 0
    reply_to_start: int = 0
    reply_to_size: int = 0
    operation: int = 0
    deliver_at_ms: int = 0
    delay_ms: int = 0

    encoded = _slice("start", "size")
    body = _slice("body_start", "body_size")
    reply_to = _slice("reply_to_start", "reply_to_size")
    topic = _text("topic_start", "topic_size", HAS_TOPIC)
    key = _text("key_start", "key_size", HAS_KEY)
    tag = _text("tag_start", "tag_size", HAS_TAG)
    id = _text("id_start", "id_size", HAS_ID)


@dataclass(slots=True)
class SendCall:
    """A send. `credential`: bytes of the Credential's fields, equal for every call that reuses one.

    `trace`: of the proxy that serves it; None: it is not traced.
    """

    frame: bytes = field(repr=False, compare=False)
    seqid: int = 0
    credential_start: int = 0
    credential_size: int = 0
    timeout_ms: int = 0
    durability: int = 0
    reply_wait_ms: int = 0
    fault: int = 0
    messages: list[Message] = field(default_factory=list)
    trace: Any = field(default=None, repr=False, compare=False)

    credential = _slice("credential_start", "credential_size")


@dataclass(slots=True)
class Ack:
    """One acknowledgement of a pull."""

    frame: bytes = field(repr=False, compare=False)
    flags: int = 0
    fault: int = 0
    receipt_start: int = 0
    receipt_size: int = 0
    verdict: int = 0
    delay_ms: int = -1
    reason_start: int = 0
    reason_size: int = 0

    receipt = _slice("receipt_start", "receipt_size")
    reason = _text("reason_start", "reason_size", HAS_REASON)


@dataclass(slots=True)
class PullCall:
    """A pull. `spans`: (start, size) of its topics; `topics` is None for the topics of the group's definition."""

    frame: bytes = field(repr=False, compare=False)
    seqid: int = 0
    credential_start: int = 0
    credential_size: int = 0
    group_start: int = 0
    group_size: int = 0
    flags: int = 0
    fault: int = 0
    max_messages: int = 32
    max_bytes: int = 1024 * 1024
    wait_ms: int = 0
    invisible_ms: int = -1
    position_count: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)

    credential = _slice("credential_start", "credential_size")

    @property
    def group(self) -> str:
        return self.frame[self.group_start : self.group_start + self.group_size].decode()

    @property
    def topics(self) -> list[str] | None:
        return [self.frame[at : at + size].decode() for at, size in self.spans] or None

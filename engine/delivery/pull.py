"""One pull: its request, and the messages found for it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class AckRange(NamedTuple):
    """Acknowledgement of one range, with one verdict. `delay_ms`: -1 is unset."""

    token: bytes
    first: int
    count: int  # type: ignore[assignment]
    verdict: int
    delay_ms: int
    reason: bytes


class PullRequest(NamedTuple):
    """A decoded PULL. `topics_key`: the bytes of its topics, under which their resolved form is remembered."""

    group: str
    topics: Sequence[tuple[str, int]]
    topics_key: bytes
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int
    start: int
    acks: list[AckRange]


class Pull:
    """A pull in progress or waiting. `answer(pull)` is called once, unless the pull is cancelled first."""

    __slots__ = (
        "ack_codes", "answer", "bytes_left", "context", "group", "invisible_ms", "messages_left",
        "piece_count", "pieces", "subscription", "tick",
    )  # fmt: skip

    def __init__(self, answer: Callable[["Pull"], None], context: object) -> None:
        self.answer, self.context = answer, context
        self.ack_codes: list[int] = []
        self.pieces: list[bytes] = []  # piece headers and records alternating, ready for the link
        self.piece_count = 0
        self.messages_left = self.bytes_left = self.invisible_ms = self.tick = 0
        self.subscription: Any = None
        self.group: Any = None

"""One pull: its request, and the messages found for it."""

from collections.abc import Callable
from typing import Any

from engine.link.acknowledgement import AckRange
from engine.link.pull import PullRequest

__all__ = ["AckRange", "Pull", "PullRequest"]


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

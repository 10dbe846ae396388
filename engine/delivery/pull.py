# cython: annotation_typing=False
"""One pull: its request, and the messages found for it."""

from collections.abc import Callable
from typing import Any

from engine.delivery.reply_window import NO_LIMIT, ReplyWindow
from engine.delivery.settings import DeliverySettings
from engine.link.acknowledgement import AckRange
from engine.link.pull import PullRequest

__all__ = ["AckRange", "Pull", "PullRequest"]


class Pull:
    """A pull in progress or waiting. `answer(pull)` is called once, unless the pull is cancelled first.

    Attributes:
        bytes_wanted: maximum bytes of its messages. bytes_left: what is left of it, and of the link's window.
        first_bytes_max: maximum bytes of the first message; above it, the pull is_short and waits for room.
        window: of the link that takes the answer.
    """

    __slots__ = (
        "ack_codes", "answer", "bytes_left", "bytes_wanted", "first_bytes_max", "group", "invisible_ms", "is_short",
        "messages_left", "piece_count", "pieces", "subscription", "tick", "window",
    )  # fmt: skip

    def __init__(self, answer: Callable[["Pull"], None], window: ReplyWindow) -> None:
        self.answer, self.window = answer, window
        self.ack_codes: list[int] = []
        self.pieces: list[bytes] = []  # piece headers and records alternating, ready for the link
        self.piece_count = 0
        self.messages_left = self.bytes_left = self.bytes_wanted = self.invisible_ms = self.tick = 0
        self.first_bytes_max = NO_LIMIT
        self.is_short = False
        self.subscription: Any = None
        self.group: Any = None

    def bound(self, request: PullRequest, settings: DeliverySettings) -> None:
        """Take over what the request asks for, within the bounds."""
        self.messages_left = min(request.max_messages, settings.pull_messages_max)
        wanted = request.max_bytes if request.max_bytes > 0 else settings.pull_bytes_default
        self.bytes_wanted = min(wanted, settings.pull_bytes_max)
        wanted = request.invisible_ms if request.invisible_ms > 0 else settings.invisible_ms_default
        self.invisible_ms = min(wanted, settings.invisible_ms_max)

    def allow(self, is_first: bool) -> bool:
        """Bound the answer by what its link takes now; False when that is nothing, so that the pull is_short.

        Args:
            is_first: no other pull has waited longer for room in the window.
        """
        size, self.first_bytes_max = self.window.allowance(is_first)
        self.bytes_left = min(self.bytes_wanted, size)
        self.is_short = size <= 0
        return size > 0

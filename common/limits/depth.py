"""The depth breaker of a topic: open while its slowest required group is too far behind, with hysteresis. Pure.

In the manner of DeFiBus, but by depths of this moment, and nobody's offset is ever moved.
"""

from dataclasses import dataclass

CLOSE_AT = 0.7
"""Of the bound: where an open breaker closes. Less keeps senders out for longer; more lets it flap."""


@dataclass(frozen=True)
class Bounds:
    """How far a required group may be behind before sends are refused; 0: as far as it likes."""

    messages: int = 0
    bytes: int = 0
    age_ms: int = 0

    def broken(self, messages: int, bytes: int, scale: float) -> str | None:
        """Which bound, times `scale`, so much has reached: `messages` or `bytes`. The age is asked for apart, it costs look-ups."""
        if self.messages and messages >= scale * self.messages:
            return "messages"
        if self.bytes and bytes >= scale * self.bytes:
            return "bytes"
        return None


@dataclass(frozen=True)
class Reason:
    """Why a breaker is open: the group that is behind, and the bound that it has reached."""

    group: str
    bound: str


class DepthBreaker:
    """
    Attributes:
        reason: of the last judgement; None: it is closed.
    """

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason: Reason | None = None

    @property
    def scale(self) -> float:
        """What the bounds are multiplied with now: an open breaker closes when all groups are below this much of them."""
        return 1.0 if self.reason is None else CLOSE_AT

    def judge(self, reason: Reason | None) -> bool:
        """Take up what was found at `scale`; True when it opened or closed."""
        changed = (reason is None) != (self.reason is None)
        self.reason = reason
        return changed

"""The backlog breaker of a topic: open while its slowest required group is too far behind, with hysteresis. Pure.

It follows DeFiBus, but uses current backlogs and never moves an offset.
"""

from dataclasses import dataclass

CLOSE_AT = 0.7
"""Share of the bound at which an open breaker closes. Less rejects sends for longer; more lets it flap."""


@dataclass(frozen=True)
class Bounds:
    """Backlog of a required group above which sends are rejected; 0: no bound."""

    messages: int = 0
    bytes: int = 0
    age_ms: int = 0

    def broken(self, messages: int, bytes: int, scale: float) -> str | None:
        """The bound, times `scale`, that this backlog has reached: `messages` or `bytes`.

        The age is checked separately, because it costs look-ups.
        """
        if self.messages and messages >= scale * self.messages:
            return "messages"
        if self.bytes and bytes >= scale * self.bytes:
            return "bytes"
        return None


@dataclass(frozen=True)
class Reason:
    """The group that keeps a breaker open, and the bound that it has reached."""

    group: str
    bound: str


class BacklogBreaker:
    """
    Attributes:
        reason: of the last decision; None: the breaker is closed.
    """

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason: Reason | None = None

    @property
    def scale(self) -> float:
        """The factor for the bounds: an open breaker closes when all groups are below this share of them."""
        return 1.0 if self.reason is None else CLOSE_AT

    def judge(self, reason: Reason | None) -> bool:
        """Take the result of a check at `scale`; True when the breaker opened or closed."""
        changed = (reason is None) != (self.reason is None)
        self.reason = reason
        return changed

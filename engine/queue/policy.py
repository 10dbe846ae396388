"""What a group's definition says of handing out again, and where the engine gets it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from common.retry import DEFAULT_RETRY, Retry

ATTEMPTS_ENDLESS = (1 << 32) - 1


@dataclass(frozen=True)
class GroupPolicy:
    """The defaults are those of a group without a definition."""

    attempts_max: int = 16
    retry: Retry = DEFAULT_RETRY
    invisible_ms: int = 30_000
    """How long whoever got a message for the last time before a restart may still acknowledge it."""
    filters: Mapping[str, str] | None = field(default_factory=dict)
    """By topic, "" for all others. None: not known now, those that the log keeps hold."""
    start_at_ms: int = 0
    """Where the group begins on a topic that it has not read before, when its pulls say "time"."""
    paused: bool = False


DEFAULT = GroupPolicy()
UNREAD = GroupPolicy(attempts_max=ATTEMPTS_ENDLESS, filters=None)
"""While there is a configuration, but it has not been read yet: nothing is given up before its time."""


class Policies(Protocol):
    """The policies of all groups, as they are now."""

    @property
    def generation(self) -> int:
        """Rises with each change."""
        ...

    def of(self, group: str) -> GroupPolicy:
        """The group's policy."""
        ...


class Defaults:
    """Every group has the default policy: an engine without a configuration."""

    generation = 0

    def of(self, group: str) -> GroupPolicy:
        return DEFAULT


DEFAULTS = Defaults()

"""What a group's definition says of handing out again, and where the engine gets it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from common.retry import DEFAULT_RETRY, Retry

NONE, KEY, QUEUE = range(3)
"""Order: none; one message of a key out at a time; one range_ of a queue out at a time."""
SKIP, PARK, STOP = range(3)
"""After the last attempt: to the dead letters; go on trying, with the key's later messages behind it, as long as there is room for
them; go on trying, with the whole queue behind it."""
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
    order: int = NONE
    on_failure: int = SKIP


DEFAULT = GroupPolicy()
UNREAD = GroupPolicy(attempts_max=ATTEMPTS_ENDLESS, filters=None, order=QUEUE)
"""While there is a configuration, but it has not been read yet: nothing is given up before its time, or out of whatever order."""


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

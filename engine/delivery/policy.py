"""Policy of a group: attempts, retry delays, order, filters; and the source of policies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from common.retry import DEFAULT_RETRY, Retry
from common.shared_reads import is_hidden_topic
from engine.link.pull import AT_TIME, EARLIEST, LATEST

NONE, KEY, QUEUE = range(3)
"""Order: none; one message per key in flight; one range per queue in flight."""
SKIP, PARK, STOP = range(3)
"""After the last attempt: dead-letter the message; retry it and hold back its key; retry it and hold back the queue.

PARK holds back later messages of the key only while there is room for them.
"""
ATTEMPTS_ENDLESS = (1 << 32) - 1


@dataclass(frozen=True)
class GroupPolicy:
    """The defaults are those of a group without a definition."""

    attempts_max: int = 16
    retry: Retry = DEFAULT_RETRY
    invisible_ms: int = 30_000
    """Time after a restart in which the holder of a last attempt may still acknowledge it."""
    filters: Mapping[str, str] | None = field(default_factory=dict)
    """By topic, "" for all others. None: not known now; the stored ones apply."""
    start_at_ms: int = 0
    """Start of the group on a topic that is new to it, when its pulls start at "time"."""
    paused: bool = False
    order: int = NONE
    on_failure: int = SKIP
    unread: str = ""
    """Reason why the definition is not known and the group is not served; empty: it is known."""
    start: int = EARLIEST
    """Start of the group on a topic that is new to it: EARLIEST, LATEST or AT_TIME of engine.link.pull."""
    is_from_now: bool = False
    """`start_at_ms` is the moment at which an operator set `latest`, by the clock of that machine."""

    def begins_with_all(self, now_ms: int) -> bool:
        """Whether the group gets every message of a topic that is created after `now_ms`, whenever it first pulls."""
        is_past = self.start == AT_TIME and self.start_at_ms <= now_ms
        return not self.unread and (self.start == EARLIEST or is_past)


DEFAULT = GroupPolicy()


def unread(reason: str) -> GroupPolicy:
    """Return the policy of a group whose definition is not known.

    Nothing is dispatched to it, nothing is dead-lettered, and its stored filters stay.
    """
    return GroupPolicy(attempts_max=ATTEMPTS_ENDLESS, filters=None, paused=True, order=QUEUE, unread=reason)


UNREAD = unread("the engine has not read the configuration yet: pull again")


class Policies(Protocol):
    """The policies of all groups, as they are now."""

    @property
    def generation(self) -> int:
        """Grows with each change."""
        ...

    def of(self, group: str) -> GroupPolicy:
        """Return the group's policy."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether each change of the configuration comes into sight at once."""
        ...

    def latest_groups(self, seen: Any) -> tuple[Any, Iterator[list[tuple[str, int]]]]:
        """The groups that begin at `latest` and when that was set, in parts that take about a millisecond each.

        Args:
            seen: the first value that an earlier call returned: groups that have not changed since are left out; None: no
                call. The groups of a part may be some that were returned before.
        """
        ...


class Defaults:
    """The default policy for every group, for an engine without a configuration."""

    generation = 0
    is_current = True

    def of(self, group: str) -> GroupPolicy:
        return DEFAULT

    def latest_groups(self, seen: Any) -> tuple[Any, Iterator[list[tuple[str, int]]]]:
        """No group has a definition."""
        return None, iter(())


DEFAULTS = Defaults()


def begins_later(topic: str, start: int) -> bool:
    """Whether a group that begins at `start` may pass over messages. All those of its hidden topics were given to it."""
    return start in (LATEST, AT_TIME) and not is_hidden_topic(topic)

"""Policies of groups, from the configuration that the engine follows."""

import re
from collections.abc import Iterator
from typing import Any

from common.config import ConfigView
from common.config.definitions import ON_FAILURE, ORDERS, GroupDefinition, SharedReadDefinition
from common.shared_reads import hidden_topic
from engine.delivery.policy import DEFAULT, UNREAD, GroupPolicy, unread
from engine.link.pull import start_of
from engine.server.policy.config_follower import ConfigFollower

UNREADABLE = unread("the engine cannot read its definition, which is of a later version: upgrade the engine")

_LATEST = re.compile(rb'^([!-~]+)\t\d+\t\{[^\n]*"start":"latest","start_at_ms":(\d+)[,}]', re.MULTILINE)
"""Name and moment of a group in the stored text of a bucket; a note of the group may look the same, which does no harm."""


class ConfiguredPolicies:
    """The policy of each group; see `engine.delivery.policy.Policies`.

    Args:
        is_configured: whether there is a configuration at all.
    """

    def __init__(self, follower: ConfigFollower, *, is_configured: bool) -> None:
        self._follower, self._unread = follower, UNREAD if is_configured else DEFAULT

    @property
    def generation(self) -> int:
        """Rises with each change."""
        return self._follower.view.generation if self._follower.view is not None else 0

    def of(self, group: str) -> GroupPolicy:
        """The group's policy."""
        view = self._follower.view
        if view is None:
            return self._unread
        found = view.group(group)
        if found is None:
            return UNREADABLE if view.is_unreadable("group", group) else DEFAULT
        return GroupPolicy(
            found.attempts_max,
            found.retry,
            found.invisible_ms,
            _filters(view, found),
            found.start_at_ms,
            found.paused,
            ORDERS.index(found.order),
            ON_FAILURE.index(found.on_failure),
            start=start_of(found.start, found.start_at_ms),
            is_from_now=found.start == "latest" and found.start_at_ms > 0,
        )

    @property
    def is_current(self) -> bool:
        """Whether there is contact to the configuration store."""
        return self._follower.view is not None and self._follower.view.age_s == 0.0

    def latest_groups(self, seen: Any) -> tuple[Any, Iterator[list[tuple[str, int]]]]:
        """The groups that begin at `latest`, one bucket of definitions per part; see `Policies`."""
        view = self._follower.view
        if view is None:
            return None, iter(())
        now = view.stored(GroupDefinition.kind)
        texts = now.texts_besides(seen)
        return now, ([(name.decode(), int(at_ms)) for name, at_ms in _LATEST.findall(text)] for text in texts)


def _filters(view: ConfigView, group: GroupDefinition) -> dict[str, str]:
    """The group's filters by topic; a hidden topic has that of the topic whose messages it holds."""
    found = group.filters
    for topic in group.topic_filters:
        hidden = hidden_topic(group.name, topic)
        if topic in found and view.find(SharedReadDefinition, hidden) is not None:
            found[hidden] = found[topic]
    return found

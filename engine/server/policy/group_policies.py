"""Policies of groups, from the configuration that the engine follows."""

from common.config import ConfigView
from common.config.definitions import ON_FAILURE, ORDERS, GroupDefinition, SharedReadDefinition
from common.shared_reads import hidden_topic
from engine.delivery.policy import DEFAULT, UNREAD, GroupPolicy, unread
from engine.link.pull import start_of
from engine.server.policy.config_follower import ConfigFollower

UNREADABLE = unread("the engine cannot read its definition, which is of a later version: upgrade the engine")


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
        )


def _filters(view: ConfigView, group: GroupDefinition) -> dict[str, str]:
    """The group's filters by topic; a hidden topic has that of the topic whose messages it holds."""
    found = group.filters
    for topic in group.topic_filters:
        hidden = hidden_topic(group.name, topic)
        if topic in found and view.find(SharedReadDefinition, hidden) is not None:
            found[hidden] = found[topic]
    return found

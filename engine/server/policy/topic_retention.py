"""Retention of topics, from the configuration that the engine follows."""

from common.dead_letters import group_of, is_dead_letter_topic
from engine.log.read.start_offsets import NONE, Retention
from engine.server.policy.config_follower import ConfigFollower


class ConfiguredRetention:
    """Each topic's own retention; a `RetentionPolicy` of the log's start offsets.

    Args:
        is_configured: whether there is a configuration at all. Until it has been read, no record is too old.
    """

    def __init__(self, follower: ConfigFollower, *, is_configured: bool) -> None:
        self._follower, self._is_configured = follower, is_configured

    @property
    def generation(self) -> int:
        """Rises with each change."""
        return self._follower.view.generation if self._follower.view is not None else 0

    @property
    def is_known(self) -> bool:
        """Whether definitions can be looked up, or there are none."""
        return self._follower.view is not None or not self._is_configured

    def of(self, topic: str) -> Retention:
        """The topic's own retention; a topic without a definition has none."""
        view = self._follower.view
        if view is None:
            return NONE
        if is_dead_letter_topic(topic):
            group = view.group(group_of(topic))
            return NONE if group is None else Retention(group.dead_letter_retention_ms, 0)
        found = view.topic(topic)
        return NONE if found is None else Retention(found.retention_ms, found.retention_bytes)

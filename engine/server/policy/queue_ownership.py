"""Queue ownership, by the broker groups of the configuration that the engine follows."""

from common.placement import Placement, topic_hash
from engine.delivery.queue_ownership import QueueOwnership
from engine.server.policy.config_follower import ConfigFollower


class ConfiguredQueueOwnership(QueueOwnership):
    """Queue ownership by the configuration.

    All queues are owned when the configuration names no group. None is owned before it has been read, or when it names
    only other groups.

    Args:
        own: the name of this engine's broker group.
        is_configured: whether there is a configuration at all.
    """

    def __init__(self, follower: ConfigFollower, own: str, *, is_configured: bool) -> None:
        self._follower, self._own, self._is_known = follower, own, not is_configured
        self._placement: Placement | None = None
        self._generation = -1

    def nearest(self, topic: str, queue: int, queues: int) -> int | None:
        self._follow()
        if not self._is_known or self._placement is None:
            return queue if self._is_known else None
        home = self._placement.names.index(self._own)
        return self._placement.nearest(home, topic_hash(topic.encode()), queue, queues)

    def _follow(self) -> None:
        view = self._follower.view
        if view is None or view.generation == self._generation:
            return
        self._generation = view.generation
        names = [group.name for group in view.broker_groups()]
        self._is_known = not names or self._own in names
        self._placement = Placement(names, view.placed_topics) if self._own in names else None

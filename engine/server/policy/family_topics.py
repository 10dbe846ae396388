"""Topics of families, from the configuration that the engine follows."""

from common.dead_letters import is_dead_letter_topic
from engine.server.policy.config_follower import ConfigFollower


class ConfiguredFamilyTopics:
    """See `engine.delivery.topic_expiry.FamilyTopics`. Without a known definition no topic is one of a family."""

    def __init__(self, follower: ConfigFollower) -> None:
        self._follower = follower

    def id_window_ms(self, topic: str) -> int | None:
        """The family's window of ids; None for a topic with a definition of its own, readable or not, or without one."""
        view = self._follower.view
        found = None if view is None or is_dead_letter_topic(topic) else view.topic(topic)
        if view is None or found is None or found.family is None or view.is_unreadable("topic", topic):
            return None
        return found.id_window_ms

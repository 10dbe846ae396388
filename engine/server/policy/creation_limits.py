"""Quotas of applications on new groups and topics, from the configuration that the engine follows."""

from engine.delivery.creations import GROUP
from engine.server.policy.config_follower import ConfigFollower


class ConfiguredCreationLimits:
    """See `engine.delivery.creations.CreationLimits`. Without a known definition there is no limit."""

    def __init__(self, follower: ConfigFollower) -> None:
        self._follower = follower

    def most(self, kind: bytes, application: str) -> int | None:
        """The application's quota."""
        view = self._follower.view
        found = None if view is None else view.application(application)
        if found is None:
            return None
        return found.groups_max if kind == GROUP else found.family_topics_max

    def is_counted(self, kind: bytes, name: str) -> bool:
        """Whether a group has no definition, or a topic that of a family."""
        view = self._follower.view
        if view is None:
            return False
        if kind == GROUP:
            return view.group(name) is None and not view.is_unreadable("group", name)
        topic = view.topic(name)
        return topic is not None and topic.family is not None

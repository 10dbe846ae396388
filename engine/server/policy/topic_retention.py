"""Retention of topics, from the configuration that the engine follows."""

from itertools import pairwise

from common.config import ConfigView
from common.config.definitions import SharedReadDefinition, TopicDefinition
from common.dead_letters import group_of, is_dead_letter_topic
from common.shared_reads import is_hidden_topic
from engine.log.read.retentions import NONE, OWN, Retention
from engine.server.policy.config_follower import ConfigFollower

BYTES_MAX = 1 << 60
UNDEFINED_GROUP = Retention(rank=0)
"""It counts less than what the log keeps of a definition."""


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

    def of(self, topic: str) -> Retention | None:
        """The topic's own retention; None when its definition is missing, and was not deleted on purpose.

        A group needs no definition, so without one its dead letters have the log's retention.
        """
        view = self._follower.view
        if view is None:
            return None if self._is_configured else NONE
        if is_dead_letter_topic(topic):
            return _of_dead_letters(view, group_of(topic))
        if is_hidden_topic(topic):
            return _of_hidden_topic(view, topic)
        found = view.topic(topic)
        if found is None:
            return NONE if view.topic_was_deleted(topic) else None
        if found.family is None:
            return Retention(found.retention_ms, _bytes_of(found))
        prefix = found.family.removesuffix("*")
        rank = OWN if view.was_deleted("topic", topic) else len(prefix)
        return Retention(found.retention_ms, found.retention_bytes, rank, prefix)


def _bytes_of(topic: TopicDefinition) -> int:
    """The bytes to divide among all queues, so that each keeps its share though others were added for another placement.

    Else queues that are only read would lose messages that wait: each range of queues has the topic's bytes.
    """
    if not topic.placement:
        return topic.retention_bytes
    firsts = [*(each.first for each in topic.placement), topic.queues]
    least = min(following - first for first, following in pairwise(firsts))
    return min(BYTES_MAX, topic.retention_bytes * topic.queues // least)


def _of_dead_letters(view: ConfigView, name: str) -> Retention | None:
    group = view.group(name)
    if group is not None:
        return Retention(group.dead_letter_retention_ms, 0)
    if view.is_unreadable("group", name):
        return None
    return NONE if view.was_deleted("group", name) else UNDEFINED_GROUP


def _of_hidden_topic(view: ConfigView, name: str) -> Retention | None:
    """That of the topic which the group pulls; its own settings are none of a hidden topic."""
    shared = view.find(SharedReadDefinition, name)
    if shared is None:
        return NONE if view.was_deleted(SharedReadDefinition.kind, name) else None
    topic = view.topic(shared.topic)
    return None if topic is None else Retention(topic.retention_ms, topic.retention_bytes)

"""Fences of topics that have ended by themselves, as proxies record it that may not change the topics' entries.

Kind `ended_fence`: by topic, `{"fence": id}`. A fence with that id is none, for every reader. The record is only made
while the entry has the fence, and what is written behind a fence only while there is no record (`seen` of `put_many`,
on both sides). So one of the two fails, as with a compare-and-set of the one entry.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from common.config.definitions import Fence, TopicDefinition
from common.config.errors import AccessDenied, VersionConflict
from common.config.store import Change, ConfigStore

KIND = "ended_fence"
RACES_MAX = 20


def without_ended_fence(topic: TopicDefinition, ended: Mapping[str, Any] | None) -> TopicDefinition:
    """Args: ended: the topic's record."""
    if topic.fence is None or ended is None or ended.get("fence") != topic.fence.id:
        return topic
    return replace(topic, fence=None)


def topic_in(store: ConfigStore, name: str) -> TopicDefinition | None:
    """The topic's own definition in the store, without a fence that has ended. Raises ConfigError, InvalidDefinition."""
    found = store.get(TopicDefinition.kind, name)
    topic = None if found is None else TopicDefinition.from_value(name, found.value)
    if topic is None or topic.fence is None:
        return topic
    ended = store.get(KIND, name)
    return without_ended_fence(topic, ended.value if ended is not None else None)


def end_fence(store: ConfigStore, topic: str, fence: Fence) -> None:
    """Remove a fence from its topic, or record that it has ended. A fence that is gone is left alone. Blocks.

    Raises:
        ConfigError
    """
    for race in range(RACES_MAX):
        seen = {TopicDefinition.kind: store.index(TopicDefinition.kind)}
        found = store.get(TopicDefinition.kind, topic)
        if found is None or found.value.get("fence") != fence.to_value():
            return
        try:
            store.put(
                TopicDefinition.kind, topic, {k: v for k, v in found.value.items() if k != "fence"}, found.version
            )
        except AccessDenied:
            if _record(store, topic, fence, seen, is_last=race == RACES_MAX - 1):
                return
        else:
            return


def _record(store: ConfigStore, topic: str, fence: Fence, seen: Mapping[str, Any], is_last: bool) -> bool:
    """False: another process was faster."""
    before = store.get(KIND, topic)
    if before is not None and before.value.get("fence") == fence.id:
        return True
    try:
        store.put_many(KIND, [Change(topic, {"fence": fence.id}, before.version if before else 0)], seen)
    except VersionConflict:
        if is_last:
            raise
        return False
    return True


def forget_ended(store: ConfigStore, topics: Collection[str]) -> None:
    """Remove the records of these topics, before they get other fences. Raises ConfigError."""
    found = [(name, store.get(KIND, name)) for name in topics]
    changes = [Change(name, None, each.version) for name, each in found if each is not None]
    if changes:
        store.put_many(KIND, changes)

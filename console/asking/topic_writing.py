"""Writes the topic of an approved request, by the verbs behind `penstock topic create` and `topic set`."""

from common.admin import topics
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.config.definitions import TopicDefinition
from common.config.errors import VersionConflict
from console.database.user_requests import UserRequest

KINDS = ("topic",)
"""Of the configuration that the write changes."""


def write(admin: Administrator, request: UserRequest) -> int:
    """Create or change the topic, and return its version. Raises ConfigError.

    One that has exactly what was asked for is ours: the answer was lost.
    """
    settings = TopicSettings(**request.settings)
    is_new = request.base_version is None
    try:
        if is_new:
            topics.create(admin, [request.name], settings)
        else:
            topics.set_topic(admin, request.name, settings, request.base_version)
    except VersionConflict:
        found, version = topics.show(admin, request.name)
        asked = TopicDefinition.from_value(request.name, {**(request.base or {}), **request.settings})
        if _settings(found) != _settings(asked):
            raise
        return version
    return topics.show(admin, request.name)[1]


def _settings(topic: TopicDefinition) -> dict[str, object]:
    return {name: value for name, value in topic.to_value().items() if name != "made_ms"}

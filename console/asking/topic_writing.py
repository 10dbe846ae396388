"""Writes the topic of an approved request, by the verbs behind `penstock topic create` and `topic set`."""

from common.admin import topics
from common.admin.administrator import Administrator
from common.admin.errors import AlreadyExist
from common.admin.topics import TopicSettings
from common.config.definitions import TopicDefinition
from common.config.errors import ConfigError, VersionConflict
from common.config.text_values import kafka_cluster_of
from console.database.user_requests import UserRequest

KINDS = ("topic",)
"""Of the configuration that the write changes."""
NOT_ASKED_FOR = ("made_ms",)
OF_KAFKA = ("made_ms", "queues", "copy_from")  # as the cluster has the topic


def is_new_in_kafka(request: UserRequest) -> bool:
    """Whether it asks for a topic whose home is a Kafka cluster: a command has to create it before `write`."""
    return request.base_version is None and kafka_cluster_of(str(request.settings.get("home", ""))) is not None


def write(admin: Administrator, request: UserRequest) -> int:
    """Create or change the topic, and return its version. Raises ConfigError.

    One that has exactly what was asked for is ours: the answer was lost.
    """
    settings = TopicSettings(**request.settings)
    if is_new_in_kafka(request):
        return _as_asked(admin, request, AlreadyExist("topic", [request.name], 1))
    try:
        if request.base_version is None:
            topics.create(admin, [request.name], settings)
        elif request.settings:  # else the schema alone changes, which the console keeps
            topics.set_topic(admin, request.name, settings, request.base_version)
    except VersionConflict as conflict:
        return _as_asked(admin, request, conflict)
    return topics.show(admin, request.name)[1]


def _as_asked(admin: Administrator, request: UserRequest, conflict: ConfigError) -> int:
    """The version of the topic where it is what was asked for. Raises the conflict where it is not."""
    found, version = topics.show(admin, request.name)
    asked = TopicDefinition.from_value(request.name, {**(request.base or {}), **request.settings})
    left_out = OF_KAFKA if is_new_in_kafka(request) else NOT_ASKED_FOR
    if _settings(found, left_out) != _settings(asked, left_out):
        raise conflict
    return version


def _settings(topic: TopicDefinition, left_out: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in topic.to_value().items() if name not in left_out}

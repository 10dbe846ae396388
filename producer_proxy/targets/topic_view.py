"""The part of the ConfigView that targets use."""

from typing import Protocol

from common.config.definitions import TopicDefinition


class TopicView(Protocol):
    """The part of the ConfigView that this module uses."""

    @property
    def generation(self) -> int: ...

    def topic(self, name: str) -> TopicDefinition | None: ...

    def topic_was_deleted(self, name: str) -> bool: ...

    @property
    def damage(self) -> str | None: ...

"""Reports up to which configuration everything that was sent to fenced topics is on both of their sides.

A migration plan that has fenced topics waits for it before it changes their home: an intent of before, which is repaired
after that, would take the new home for the side that has the message.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from common.config.definitions import TopicDefinition
from common.config.store import COPIED, JOURNAL, SENT, ConfigVersion
from producer_proxy.targets.settling import Settling

LOOK_S = 0.05


class HeldTopics(Protocol):
    """A Journaling."""

    @property
    def has_journal(self) -> bool: ...

    def held(self) -> Iterable[str]: ...


class CopiedReport:
    """
    Args:
        sent: numbers of the SentReport.
        topic: the definition of a topic as it is in force here.
        version: number of the topics' configuration that is in force here.
        report: writes the process's report; blocks a greenlet.
    """

    def __init__(
        self, journaling: HeldTopics, sent: Callable[[], ConfigVersion], topic: Callable[[str], TopicDefinition | None],
        version: Callable[[], int], report: Callable[[], object],
    ) -> None:  # fmt: skip
        self._journaling, self._sent, self._topic = journaling, sent, topic
        self._version = version
        self._copied = self._wanted = 0
        self._settling = Settling(LOOK_S, self._settle, report)

    def numbers(self) -> ConfigVersion:
        """For the process's report."""
        return {COPIED: self._copied, JOURNAL: int(self._journaling.has_journal)}

    def follow(self) -> None:
        """Take note of a change of the configuration; after SentReport has."""
        self._wanted = self._version()
        self._settling.begin()

    def close(self) -> None:
        """Look no more."""
        self._settling.close()

    def _settle(self) -> bool:
        if self._sent()[SENT] < self._wanted or any(map(self._is_fenced, self._journaling.held())):
            return False
        self._copied = self._wanted
        return True

    def _is_fenced(self, name: str) -> bool:
        definition = self._topic(name)
        return definition is not None and definition.fence is not None

"""The engine's side as a plan's deployment asks it, and clients of deployments that are not asked for them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from common.kafka.base import PartitionReader
from common.kafka.group_admin import GroupAdmin
from common.kafka.records import Partition
from engine.link.copy import ForeignSource, SourceState
from migration.copied_tails import EngineTails
from migration.leftovers import LeftDeadLetters, LeftDelayedMessages
from migration.positions import CopiedTopic
from migration.tails import EnginePlace


def no_reader() -> PartitionReader:
    """Of a world whose copies never lose a position."""
    raise AssertionError("no reader was given")


def no_groups() -> GroupAdmin:
    """Of a world whose groups are not asked for."""
    raise AssertionError("no client for groups was given")


class EngineSide(EngineTails, Protocol):
    """The engine's side; see EnginePositions."""

    def copied(self, topics: Sequence[CopiedTopic]) -> dict[str, list[SourceState]]: ...

    def ends(self, topic: CopiedTopic) -> dict[int, int]: ...

    def rebase(
        self, topic: CopiedTopic, sources: Sequence[ForeignSource], ends: Sequence[int], reason: str
    ) -> None: ...

    def backlog(self, topic: str, group: str) -> int: ...

    def delayed(self, topic: str) -> LeftDelayedMessages: ...

    def dead_letters(
        self, topics: Collection[str], groups: Collection[str]
    ) -> dict[str, tuple[LeftDeadLetters, ...]]: ...

    def places(self, topic: CopiedTopic, rows: Sequence[SourceState]) -> dict[Partition, EnginePlace]: ...

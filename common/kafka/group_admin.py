"""Consumer groups of a cluster: the questions and changes that both drivers have."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from common.kafka.codes import GROUP_AUTHORIZATION_FAILED
from common.kafka.errors import KafkaRefusal
from common.kafka.records import Partition

GROUPS_PER_REQUEST = 500
"""Of questions for many groups."""
NO_SUCH_GROUP = (24, 69)
"""Kafka's numbers: the group is gone, or is of a kind that has no such answer."""
Answer = TypeVar("Answer")


def in_parts(
    groups: Sequence[str], ask: Callable[[Sequence[str]], Mapping[str, Answer]]
) -> Iterator[tuple[str, Answer]]:
    """The answers for many groups by few requests; groups that Kafka does not know as such are left out.

    A part that is refused is asked for in halves: the library says only that one of its groups was.
    """
    for begin in range(0, len(groups), GROUPS_PER_REQUEST):
        yield from _answers(groups[begin : begin + GROUPS_PER_REQUEST], ask)


def _answers(
    groups: Sequence[str], ask: Callable[[Sequence[str]], Mapping[str, Answer]]
) -> Iterator[tuple[str, Answer]]:
    try:
        yield from ask(groups).items()
    except KafkaRefusal as refusal:
        middle = len(groups) // 2
        if middle:
            yield from _answers(groups[:middle], ask)
            yield from _answers(groups[middle:], ask)
        elif refusal.number not in NO_SUCH_GROUP:
            raise


@contextmanager
def named(cluster: str, groups: Sequence[str]) -> Iterator[None]:
    """Name the group, and the permission that its user lacks, where Kafka refuses a question about one group."""
    try:
        yield
    except KafkaRefusal as refusal:
        if refusal.number != GROUP_AUTHORIZATION_FAILED or len(groups) != 1:
            raise
        raise KafkaRefusal(
            refusal.number,
            f'kafka "{cluster}": group {groups[0]}: GROUP_AUTHORIZATION_FAILED: Kafka\'s access lists do not let the '
            "cluster's user DESCRIBE it; READ of the group includes that",
        ) from refusal


class CommittedPosition(NamedTuple):
    """A position of a group. Attributes: note: the text that was committed with it; empty: none was."""

    offset: int
    note: str = ""


class GroupAdmin(ABC):
    """For one thread. All calls block and raise KafkaFault."""

    @abstractmethod
    def groups(self) -> dict[str, str]:
        """Consumer groups and their states, such as Stable or Empty."""

    @abstractmethod
    def committed(
        self, group: str, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, CommittedPosition]:
        """The positions of a group; empty also for a group that does not exist. Raises KafkaRefusal: it may not be seen.

        Args:
            partitions: of interest: those of others may be left out. None: all are of interest, which costs more.
        """

    def group_offsets(self, group: str) -> dict[Partition, int]:
        """As `committed`, without the notes."""
        return {each: position.offset for each, position in self.committed(group).items()}

    @abstractmethod
    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete groups and their positions; those that do not exist are left out. Raises KafkaRefusal: one has members."""

    @abstractmethod
    def set_group_offsets(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Set positions of a group without members. Raises KafkaRefusal: it has members."""

    @abstractmethod
    def committed_on(self, groups: Sequence[str], topics: Mapping[str, int]) -> dict[str, dict[Partition, int]]:
        """The positions of many groups on these topics; groups that have none there are left out.

        Args:
            topics: their numbers of partitions.
        """

    @abstractmethod
    def subscribed(self, groups: Sequence[str]) -> dict[str, set[str]]:
        """Topics of the partitions that members of these groups have; groups that a driver cannot describe are left out."""

    @abstractmethod
    def not_joinable(self, groups: Sequence[str]) -> list[str]:
        """Those of these groups that the user may not read, as their members do, though it may see them.

        Groups that Kafka does not know are left out. Raises KafkaRefusal: it may not see one.
        """

    @abstractmethod
    def close(self) -> None: ...

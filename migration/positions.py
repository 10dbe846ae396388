"""Positions of copies, asked anew each time: of the engine's queues by SOURCE_STATE, of Kafka by its administration.

No memory of a copier takes part, so they are right whatever was killed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from common.contract import Code
from common.kafka.base import END, STABLE_END, ClusterAdmin
from common.kafka.records import Partition
from common.names import stored_name
from common.placement import NONE_PLACED, PlacedTopics, Placement, topic_hash
from engine.client.admin import AdminError
from engine.client.backlog import backlogs
from engine.client.copied import CopyLink, accept, states
from engine.client.dial import Hello
from engine.client.single_reads import MessageAt, messages_at
from engine.link.copy import QUEUES_PER_REQUEST_MAX, ForeignSource, SourceState
from kafka_bridge.copy_in.last_copied import LastCopied, last_copied
from migration.leftovers import LeftDeadLetters, LeftDelayedMessages, dead_letters, delayed_messages
from migration.tails import EnginePlace

NO_SOURCE = SourceState(0, 0, 0, 0, [])
BOTH_HAVE = "both sides have what lies before"
"""Ends the reason of a source that was accepted behind what proxies had written to both sides."""


class CopiedTopic(NamedTuple):
    """Attributes: made_ms: of its entry."""

    name: str
    made_ms: int
    queues: int


class EngineLink(CopyLink, Protocol):
    """An AdminClient."""

    hello: Hello

    def ask(self, verb: str, **options: object) -> dict: ...


class QueueHome(NamedTuple):
    """An engine and the queues of a topic that it has."""

    link: EngineLink
    queues: list[int]


class EnginePositions:
    """The engine's side.

    Args:
        links: to the engine of each broker group, by the group's name.
    """

    def __init__(self, links: Mapping[str, EngineLink], placed: PlacedTopics = NONE_PLACED) -> None:
        self._links, self._placement = list(links.values()), Placement(list(links), placed)

    def copied(self, topics: Sequence[CopiedTopic]) -> dict[str, list[SourceState]]:
        """The state of each queue's source, by topic; an empty list: an engine does not have the topic yet.

        A queue that an engine does not have yet has no source.

        One request per engine and 10,000 queues, as long as every topic is known there. Raises AdminError.
        """
        found: dict[str, list[SourceState]] = {}
        for some in _bounded(topics):
            try:
                found |= self._copied(some)
            except AdminError as error:
                if error.code not in (Code.UNKNOWN_TOPIC, Code.INVALID):
                    raise
                found |= self._one_by_one(some) if len(some) > 1 else {some[0].name: self._of_queues(some[0], error)}
        return found

    def _one_by_one(self, topics: Sequence[CopiedTopic]) -> dict[str, list[SourceState]]:
        return {name: rows for topic in topics for name, rows in self.copied([topic]).items()}

    def _of_queues(self, topic: CopiedTopic, error: AdminError) -> list[SourceState]:
        """The states of a topic of which an engine has no queue yet, or not all that its entry has."""
        if error.code == Code.UNKNOWN_TOPIC:
            return []
        found = dict.fromkeys(range(topic.queues), NO_SOURCE)
        name = stored_name(topic.name, topic.made_ms)
        for link, queues in self._by_link(topic).items():
            for queue in queues:
                try:
                    found |= {queue: states(self._links[link], [(name, queue)])[0]}
                except AdminError as missing:
                    if missing.code != Code.INVALID:
                        raise
        return [found[queue] for queue in range(topic.queues)]

    def _copied(self, topics: Sequence[CopiedTopic]) -> dict[str, list[SourceState]]:
        asked: dict[int, list[tuple[CopiedTopic, int]]] = {}
        for topic in topics:
            for link, queues in self._by_link(topic).items():
                asked.setdefault(link, []).extend((topic, queue) for queue in queues)
        found: dict[tuple[str, int], SourceState] = {}
        for link, wanted in asked.items():
            rows = states(self._links[link], [(stored_name(each.name, each.made_ms), queue) for each, queue in wanted])
            found |= {(each.name, queue): row for (each, queue), row in zip(wanted, rows, strict=True)}
        return {each.name: [found[each.name, queue] for queue in range(each.queues)] for each in topics}

    def places(self, topic: CopiedTopic, rows: Sequence[SourceState]) -> dict[Partition, EnginePlace]:
        """The engine's log and topic that each queue belongs to.

        Args:
            rows: the queues' states.
        """
        logs = {
            queue: self._links[link].hello.log_id for link, queues in self._by_link(topic).items() for queue in queues
        }
        return {Partition(topic.name, queue): (logs[queue], row.topic_id) for queue, row in enumerate(rows)}

    def last_copied(self, topic: CopiedTopic, rows: Sequence[SourceState]) -> dict[int, LastCopied]:
        """The last record that was copied into each queue. Raises AdminError."""
        name = stored_name(topic.name, topic.made_ms)
        found: dict[int, LastCopied] = {}
        for link, queues in self._by_link(topic).items():
            found |= last_copied(self._links[link], name, {each: rows[each] for each in queues if each < len(rows)})
        return found

    def message_at(self, topic: CopiedTopic, queue: int, offset: int) -> MessageAt:
        """What a queue has at an offset. Raises AdminError."""
        link = next(each.link for each in self.homes(topic) if queue in each.queues)
        return messages_at(link, stored_name(topic.name, topic.made_ms), {queue: offset})[queue]

    def ends(self, topic: CopiedTopic) -> dict[int, int]:
        """End offsets of the queues that hold messages. Raises AdminError."""
        found: dict[int, int] = {}
        for link, queues in self._by_link(topic).items():
            try:
                rows = self._links[link].ask("purge_topic", topic=topic.name)["purged"]  # without `ends` it only lists
            except AdminError as error:
                if error.code != Code.UNKNOWN_TOPIC:
                    raise
                continue
            found |= {row["queue"]: row["end"] for row in rows if row["queue"] in queues}
        return found

    def rebase(
        self, topic: CopiedTopic, sources: Sequence[ForeignSource], ends: Sequence[int], reason: str
    ) -> None:  # fmt: skip
        """Have each queue's source go on at its end, if it has not come there. Raises AdminError.

        Args:
            sources: of the queues that have none: those of partitions that were added while proxies wrote to both sides.
        """
        name = stored_name(topic.name, topic.made_ms)
        for link, queues in self._by_link(topic).items():
            filled = [each for each in queues if each < len(ends) and ends[each]]  # an engine may lack the others
            for queue, state in zip(filled, states(self._links[link], [(name, each) for each in filled]), strict=True):
                source = sources[queue] if state.source is None else state.source
                if state.source is None or state.next < ends[queue]:
                    accept(
                        self._links[link], name, queue, source, start=ends[queue], replaces=state.number,
                        reason=reason, next_offset=state.next,
                    )  # fmt: skip

    def homes(self, topic: CopiedTopic) -> list[QueueHome]:
        """The engines that have queues of the topic."""
        return [QueueHome(self._links[link], queues) for link, queues in self._by_link(topic).items()]

    def backlog(self, topic: str, group: str) -> int:
        """Messages of a topic that a group has not acknowledged; 0 where no engine has the topic. Raises AdminError."""
        return sum(each.messages for link in self._links for each in backlogs(link, topic, group))

    def delayed(self, topic: str) -> LeftDelayedMessages:
        """Delayed messages of a topic that wait. Raises AdminError."""
        return delayed_messages(self._links, topic)

    def dead_letters(self, topics: Collection[str], groups: Collection[str]) -> dict[str, tuple[LeftDeadLetters, ...]]:
        """Dead letters by topic; see `leftovers.dead_letters`. Raises AdminError."""
        return dead_letters(self._links, topics, groups)

    def _by_link(self, topic: CopiedTopic) -> dict[int, list[int]]:
        """Queues by the number of the link to their broker group."""
        return self._placement.by_home(topic_hash(topic.name.encode()), topic.queues)


def _bounded(topics: Sequence[CopiedTopic]) -> Iterator[list[CopiedTopic]]:
    """The topics in parts whose queues fit into one request."""
    part: list[CopiedTopic] = []
    for topic in topics:
        if part and sum(each.queues for each in part) + topic.queues > QUEUES_PER_REQUEST_MAX:
            yield part
            part = []
        part.append(topic)
    if part:
        yield part


class KafkaEnds(NamedTuple):
    """End offsets by topic: of all records, and up to where readers of committed ones see."""

    ends: dict[str, tuple[int, ...]]
    stable: dict[str, tuple[int, ...]]


def kafka_ends(kafka: ClusterAdmin, queues: Mapping[str, int]) -> KafkaEnds:
    """Two requests for all topics together.

    The ends are asked first: so what is stored between the two does not seem to be of an open transaction.

    Args:
        queues: the number of partitions of each topic.
    """
    asked = [Partition(name, number) for name, count in queues.items() for number in range(count)]
    ends = kafka.offsets(asked, END)
    stable = {each: min(at or 0, ends.get(each) or 0) for each, at in kafka.offsets(asked, STABLE_END).items()}
    return KafkaEnds(_by_topic(queues, ends), _by_topic(queues, stable))


def _by_topic(
    queues: Mapping[str, int], found: Mapping[Partition, int | None] | Mapping[Partition, int]
) -> dict[str, tuple[int, ...]]:
    return {name: tuple(found.get(Partition(name, n)) or 0 for n in range(count)) for name, count in queues.items()}


def next_offsets(copied: Mapping[str, Sequence[SourceState]]) -> dict[Partition, int]:
    """The positions of the copies as the engine has them."""
    return {Partition(name, queue): each.next for name, rows in copied.items() for queue, each in enumerate(rows)}


def padded(ends: tuple[int, ...], queues: int) -> tuple[int, ...]:
    """Ends of all queues; 0 of one without a partition. Empty: the topic does not exist."""
    return ends + (0,) * (queues - len(ends)) if ends else ()


def source_faults(rows: Sequence[SourceState]) -> tuple[str, ...]:
    """Why a copy cannot be trusted to be whole."""
    return tuple(
        f"queue {queue}: sources accepted after its first: {state.number - 1:,}, the last because: {state.sources[-1].reason}"
        for queue, state in enumerate(rows)
        if len({each.source for each in state.sources}) > 1
    )

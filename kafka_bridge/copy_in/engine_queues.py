"""The queues of one topic at the engines of their broker groups, as a copier uses them: blocking, for one thread."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from common.names import split_stored_name
from common.placement import NONE_PLACED, Placement, Ranges, topic_hash
from engine.client import copied
from engine.client.admin import AdminError
from engine.client.backlog import QueueBacklog, backlogs
from engine.client.blocking import Address, LeadingLink
from engine.link.codes import OK, UNKNOWN_TOPIC
from engine.link.copy import Copied, CopyPart, ForeignSource, SourceState
from engine.link.operations import TOPIC
from engine.link.topic import encode_topics
from kafka_bridge.copy_in.last_copied import LastCopied, last_copied

START_REASON = "the copy began"
PASSED_REASON = "Kafka has deleted what was read and had nothing to copy"
Groups = Mapping[str, Sequence[Address]]
"""Addresses of each broker group's brokers, by its name."""
Connect = Callable[[str, Sequence[Address]], LeadingLink]


class EngineQueues:
    """
    Args:
        topic: the topic's stored name.
        groups: all broker groups, one at least.
        connect: makes the link to a group of this name.
        ranges: of the topic's queues, where it is placed on some groups.
    """

    def __init__(self, topic: str, durability: int, groups: Groups, connect: Connect, ranges: Ranges = ()) -> None:
        self._topic, self._durability = topic, durability
        self._links = {name: connect(name, addresses) for name, addresses in groups.items()}
        self._names = list(self._links)
        self._hash = topic_hash(split_stored_name(topic)[0].encode())
        self._placement = Placement(self._names, {self._hash: ranges} if ranges else NONE_PLACED)

    @property
    def groups(self) -> set[str]:
        """Names of all broker groups."""
        return set(self._names)

    def group_of(self, queue: int) -> str:
        """The broker group that has the queue."""
        return self._names[self._placement.home(self._hash, queue)]

    def by_group(self, queues: Iterable[int]) -> dict[str, list[int]]:
        """The queues of each broker group."""
        found: dict[str, list[int]] = defaultdict(list)
        for queue in queues:
            found[self.group_of(queue)].append(queue)
        return found

    def create(self, group: str, queues: int) -> None:
        """Have the topic with at least so many queues at a group. Raises AdminError, OSError, LinkError."""
        code, answer = self._links[group].call(TOPIC, encode_topics([(self._topic, queues)]))
        if code != OK:
            raise AdminError(code, answer.decode("utf-8", "replace"))
        json.loads(answer)

    def log_id(self, group: str) -> str:
        """Of the engine that leads a group. Raises OSError, LinkError."""
        return self._links[group].hello.log_id

    def states(self, group: str, queues: Sequence[int]) -> dict[int, SourceState]:
        """How far the sources of a group's queues are copied. Raises AdminError, OSError, LinkError."""
        found = copied.states(self._links[group], [(self._topic, queue) for queue in queues])
        return dict(zip(queues, found, strict=True))

    def last_copied(self, group: str, states: Mapping[int, SourceState]) -> dict[int, LastCopied]:
        """The last record that was copied into queues of a group. Raises AdminError, OSError, LinkError."""
        return last_copied(self._links[group], self._topic, states)

    def begin(self, group: str, queue: int, source: ForeignSource, start: int) -> SourceState:
        """Accept the first source of a queue. Raises AdminError, also when another copier was faster; OSError."""
        return self.accept(group, queue, source, start, 0, START_REASON)

    def accept(
        self, group: str, queue: int, source: ForeignSource, start: int, replaces: int, reason: str,
        next_offset: int | None = None,
    ) -> SourceState:  # fmt: skip
        """Accept another source in place of that with the number `replaces`, or the first one of the queue.

        Args:
            next_offset: the next offset that the queue must have; None: any.
        Raises:
            AdminError: also when another copier was faster. OSError, LinkError.
        """
        return copied.accept(
            self._links[group], self._topic, queue, source, start=start, replaces=replaces, reason=reason,
            next_offset=next_offset,
        )  # fmt: skip

    def ends_elsewhere(self, group: str, queue: int, source: ForeignSource) -> list[int]:
        """Where other broker groups, which had the queue before, have ended the copy of this source."""
        found = []
        for other in self.groups - {group}:
            try:
                state = self.states(other, [queue])[queue]
            except AdminError as error:
                if error.code != UNKNOWN_TOPIC:
                    raise
                continue
            found += [state.next] if state.source == source else []
        return found

    def lags(self, group: str, reader: str) -> list[QueueBacklog]:
        """Per queue, what the consumer group `reader` has not acknowledged at a broker group.

        Empty while the broker group does not have the topic. Raises AdminError, OSError, LinkError.
        """
        return backlogs(self._links[group], split_stored_name(self._topic)[0], reader)

    def copy(self, group: str, parts: Sequence[CopyPart]) -> list[Copied]:
        """Store the parts of a group's queues, as durable as the topic asks. Raises AdminError, OSError, LinkError."""
        return copied.copy(self._links[group], self._durability, parts)

    def close(self) -> None:
        for link in self._links.values():
            link.close()

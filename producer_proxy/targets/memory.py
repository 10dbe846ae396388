"""Target over a broker in this process' memory, for tests and for proxies without an engine.

Messages end with the process. The target does not de-duplicate ids, and takes no delayed messages and no requests.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from common.config.definitions import GRADES, TopicDefinition
from common.contract import Code
from common.keyhash import queue_of
from common.memory_broker import MemoryBroker
from engine.client.durability import number_of
from engine.link.record import encode_record
from producer_proxy.targets.base import Asker, MessageSlice, OnOutcomes, Outcome, SendTarget


class MemoryDestination(NamedTuple):
    """A topic as a MemoryBroker knows it."""

    name: bytes
    queues: int
    durability: int
    grade: int


class MemoryTarget(SendTarget):
    """The target. Messages without a key go to one queue of their topic per submission, round robin.

    Args:
        broker: keeps the messages; an unknown topic is created with the queues of its definition.
        now_ms: Unix ms.
    """

    name = "memory"

    def __init__(self, broker: MemoryBroker, now_ms: Callable[[], int]) -> None:
        self._broker, self._now_ms = broker, now_ms
        self._turn = 0

    def resolve(
        self, definitions: Mapping[str, TopicDefinition], generation: int, asker: Asker
    ) -> dict[str, MemoryDestination]:
        return {name: self._destination(definition) for name, definition in definitions.items()}

    def served_as(self, durability: int) -> int:
        return number_of("memory")

    def admits(
        self, durability: int, destination: MemoryDestination, key: bytes | int | None, taken: int, asked: int
    ) -> bool:
        return True

    def submit(self, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> bool:
        self._turn += 1
        by_queue: dict[tuple[str, int], list[int]] = {}
        for index, (destination, key, _, _) in enumerate(messages):
            queue = queue_of(key, destination.queues) if isinstance(key, bytes) else self._turn % destination.queues
            by_queue.setdefault((destination.name.decode(), queue), []).append(index)
        outcomes: list[Outcome] = [(int(Code.OK), 0, -1)] * len(messages)
        for (topic, queue), indexes in by_queue.items():
            records = [encode_record(messages[index].encoded, messages[index].assigned_id or b"") for index in indexes]
            base = self._broker.append(topic, queue, records, self._now_ms())
            for step, index in enumerate(indexes):
                outcomes[index] = (int(Code.OK), queue, base + step)
        on_outcomes(outcomes)
        return True

    def close(self) -> None:
        """Does nothing: the creator of the broker owns it."""

    def _destination(self, topic: TopicDefinition) -> MemoryDestination:
        queues = self._broker.queues(topic.name)
        if queues is None:
            queues = topic.queues
            self._broker.create_topic(topic.name, queues)
        return MemoryDestination(topic.name.encode(), queues, number_of(topic.durability), GRADES.index(topic.grade))

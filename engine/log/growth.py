"""Growth of topics: where each queue ended when a topic got more queues, so that order by key survives the change.

The queue of a key depends on the number of queues, so a growth moves keys. A group with order by key has to finish a
key's messages in its old queue first (engine/delivery/key_moves.py).

Stored as progress. Key: b"\\0grown" ‖ u32 topic id ‖ u32 old number of queues, big-endian. Value: varints: version 1 ‖
Unix ms ‖ end offset of each old queue.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from common.names import split_stored_name
from engine.log.types import Topic

VERSION = 1
_PREFIX = b"\0grown"


class QueueGrowth(NamedTuple):
    """One growth of a topic. `ends`: end offset of each queue that the topic had before it."""

    at_ms: int
    ends: tuple[int, ...]


class TopicGrowth:
    """Creates topics, and records each growth before the topic has its new queues.

    A crash between the two leaves a record of a growth that has not happened; the growth itself replaces it.

    Args:
        create, topic, bounds, put_progress, progress: of the log.
        now_ms: the wall clock.
        next_id: returns the id of the next new topic.
        forget: forgets a topic, of the log.
    """

    def __init__(
        self,
        create: Callable[[Iterable[tuple[str, int]]], list[Topic]],
        topic: Callable[[str], Topic | None],
        bounds: Callable[[int, int], tuple[int, int]],
        put_progress: Callable[[Sequence[tuple[bytes, bytes]]], None],
        progress: Callable[[bytes], Iterator[tuple[bytes, bytes]]],
        now_ms: Callable[[], int],
        next_id: Callable[[], int],
        forget: Callable[[Topic], None],
    ) -> None:
        self._create, self._topic, self._bounds = create, topic, bounds
        self._put_progress, self._progress, self._now_ms = put_progress, progress, now_ms
        self._next_id, self._forget = next_id, forget
        self._listeners: list[Callable[[Topic, list[QueueGrowth]], None]] = []
        self._replacing: list[Callable[[Topic, int], None]] = []
        self._replaced: list[Callable[[Topic, Topic], None]] = []
        self._forgotten: list[Callable[[Topic], None]] = []

    def on_growth(self, callback: Callable[[Topic, list[QueueGrowth]], None]) -> None:
        """Have `callback(topic, all its growths)` called after each growth, before a message is in a new queue."""
        self._listeners.append(callback)

    def on_replacing(self, callback: Callable[[Topic, int], None]) -> None:
        """Have `callback(old, new id)` called before a topic is created again.

        So a crash leaves no new topic that lacks what the callback stores.
        """
        self._replacing.append(callback)

    def on_replaced(self, callback: Callable[[Topic, Topic], None]) -> None:
        """Have `callback(old, new)` called after a topic was created again: the old one has no name any more."""
        self._replaced.append(callback)

    def on_forgotten(self, callback: Callable[[Topic], None]) -> None:
        """Have `callback(topic)` called after a topic was forgotten: its name and its id are unknown."""
        self._forgotten.append(callback)

    def forget_listeners(self) -> None:
        """Call none of them any more: their node has ended."""
        for each in (self._listeners, self._replacing, self._replaced, self._forgotten):
            each.clear()

    def of(self, topic_id: int) -> list[QueueGrowth]:
        """The topic's growths, oldest first."""
        return [_decode(value) for _, value in self._progress(_prefix(topic_id))]

    def old_counts(self, topic_id: int) -> list[int]:
        """The numbers of queues that the topic had before its growths."""
        return [len(each.ends) for each in self.of(topic_id)]

    def create_topics(self, wanted: Iterable[tuple[str, int]]) -> list[Topic]:
        """As TopicCreator.create_topics()."""
        asked = list(wanted)
        known = [(name, queues, self._topic(split_stored_name(name)[0])) for name, queues in asked]
        growing = [
            old for name, queues, old in known if old is not None and old.queues < queues and self._topic(name) == old
        ]
        growths = {}
        for old in growing:
            # Read before the topic grows: what follows the growth must not fail after it.
            earlier = [each for each in self.of(old.id) if len(each.ends) < old.queues]
            ends = [self._bounds(old.id, queue)[1] for queue in range(old.queues)]
            growth = QueueGrowth(self._now_ms(), tuple(ends))
            self._put_progress([(_key(old), _encode(growth))])
            growths[old.id] = [*earlier, growth]
        for name, queues, before in known:
            if before is not None and 0 < before.made_ms < split_stored_name(name)[1]:
                self._replace(before, name, queues)
        made = self._create(asked)
        for topic_id, all_growths in growths.items():
            for grown in self._listeners:
                grown(next(topic for topic in made if topic.id == topic_id), all_growths)
        return made

    def forget_topic(self, topic: Topic) -> None:
        """Forget a topic of which the log holds nothing (engine/log/upkeep/forgetting.py). Raises DiskFullError."""
        if growths := [(raw, b"") for raw, _ in self._progress(_prefix(topic.id))]:
            self._put_progress(growths)
        self._forget(topic)
        for forgotten in self._forgotten:
            forgotten(topic)

    def _replace(self, old: Topic, name: str, queues: int) -> None:
        if self._topic(split_stored_name(name)[0]) != old:
            return  # the request names it twice
        for replacing in self._replacing:
            replacing(old, self._next_id())
        (new,) = self._create([(name, queues)])
        for replaced in self._replaced:
            replaced(old, new)
        self._put_progress([(raw, b"") for raw, _ in self._progress(_prefix(old.id))])


def _key(old: Topic) -> bytes:
    return _prefix(old.id) + old.queues.to_bytes(4, "big")


def _prefix(topic_id: int) -> bytes:
    return _PREFIX + topic_id.to_bytes(4, "big")


def _encode(growth: QueueGrowth) -> bytes:
    out = bytearray()
    for number in (VERSION, growth.at_ms, *growth.ends):
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def _decode(value: bytes) -> QueueGrowth:
    numbers, number, shift = [], 0, 0
    for byte in value:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) < 3 or numbers[0] != VERSION:
        raise ValueError(f"growth of {len(value)} bytes: not of version {VERSION}")
    return QueueGrowth(numbers[1], tuple(numbers[2:]))

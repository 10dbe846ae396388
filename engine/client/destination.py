"""Destinations of topics at the engine, and the bounded table of those in use. The reference of `_destination`."""

from collections import OrderedDict

from common.keyhash import queue_of
from common.limits import Meter
from engine.client.durability import CLASSES
from engine.link import layout


class Destination:
    """A topic as its brokers know it. Made when the first message for it comes; void when a broker's log_id or epoch changes.

    Args:
        topic_id: the only broker's; with several broker groups they are in `ids`.
        durability: number of the topic's durability class.
        homes, ids: with several broker groups, the home of each queue and the topic id at each group; see
            _destination.pxd.
        first_queue: of those that take new messages.
    """

    __slots__ = (
        "body_bytes_max", "buffered", "checked_at", "diverted", "durability", "first_queue", "grade", "homes", "id_window_ms",
        "ids", "is_doubled", "is_special", "lane", "made_ms", "meter", "name", "next_queue", "queues", "sticky", "tap",
        "topic_id",
    )  # fmt: skip

    def __init__(
        self, name: bytes, topic_id: int, queues: int, durability: int, body_bytes_max: int, id_window_ms: int = 0,
        homes: bytes | None = None, ids: bytes | None = None, first_queue: int = 0,
    ) -> None:  # fmt: skip
        if not 1 <= durability <= len(CLASSES):
            raise ValueError(f"durability class {durability}: use 1 to {len(CLASSES)}")
        self.name, self.topic_id, self.queues = name, topic_id, queues
        self.id_window_ms = id_window_ms
        self.durability, self.body_bytes_max = durability, body_bytes_max
        if homes is not None and (ids is None or len(homes) != queues or len(ids) % 4 or max(homes) >= len(ids) // 4):
            raise ValueError("homes and ids: one home per queue, one topic id per home")
        self.homes, self.ids = homes, ids
        if first_queue and first_queue >= queues:
            raise ValueError(f"first queue {first_queue} of {queues}: one at least has to take messages")
        self.first_queue = self.next_queue = first_queue
        self.checked_at = self.made_ms = 0
        self.buffered = self.diverted = False
        self.meter: Meter | None = None
        self.grade, self.is_special, self.is_doubled = 0, False, False
        self.tap: None = None  # native lanes alone have taps
        self.lane: None = None  # native code alone sends to Kafka without values
        self.sticky: dict[int, tuple[int, int]] = {}  # index of the lane -> (its append, the queue)

    def id_at(self, group: int) -> int:
        """The topic's id at a broker group; 0: not known."""
        return self.topic_id if self.ids is None else layout.U32.unpack_from(self.ids, 4 * group)[0]

    def choose_queue(self, lane: int, append: int, key: bytes | None) -> int:
        """Queue of a message: by its key; without a key, one queue per append, in rotation."""
        if key is not None:
            return self.queue_of_key(key)
        if self.sticky.get(lane, (0, self.first_queue))[0] != append:
            self.sticky[lane] = (append, self.next_queue)
            self.next_queue = self.queue_after(self.next_queue)
        return self.sticky[lane][1]

    def queue_of_key(self, key: bytes) -> int:
        """The queue of a key, by Kafka's hash, among those that take new messages."""
        return self.first_queue + queue_of(key, self.queues - self.first_queue)

    def queue_after(self, queue: int) -> int:
        """The next queue in the rotation of those that take new messages."""
        return queue + 1 if queue + 1 < self.queues else self.first_queue


class Destinations:
    """Destinations by name, at most `count_max`; a full table evicts the one whose last use is longest ago."""

    def __init__(self, count_max: int) -> None:
        self._by_name: OrderedDict[bytes, Destination] = OrderedDict()
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: bytes) -> Destination | None:
        """The destination, or None."""
        found = self._by_name.get(name)
        if found is not None:
            self._by_name.move_to_end(name)
        return found

    def put(self, destination: Destination) -> None:
        """Keep the destination, in place of the one with the same name."""
        self._by_name.pop(destination.name, None)
        if len(self._by_name) >= self._count_max:
            self._by_name.popitem(last=False)
        self._by_name[destination.name] = destination

    def discard(self, name: bytes) -> None:
        """Forget the destination, if it is there."""
        self._by_name.pop(name, None)

    def discard_id(self, group: int, topic_id: int) -> int:
        """Forget the destinations with that topic id at that broker group; returns their number. Searches all."""
        found = [
            name
            for name, each in self._by_name.items()
            if (each.ids is None or 4 * group < len(each.ids)) and each.id_at(group) == topic_id
        ]
        for name in found:
            del self._by_name[name]
        return len(found)

    def clear(self) -> None:
        self._by_name.clear()

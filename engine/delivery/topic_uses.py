"""Uses of topics: which ones sends, pulls and reads have asked for lately, so that no topic in use is forgotten.

A send is noticed by its message. Here are the requests that may leave none: look-ups before a send, claims of ids,
pulls and reads. A pull of topics that are noted already costs one look-up in a set.
"""

from collections.abc import Callable, Iterable, Iterator

from engine.log.types import Topic

KEYS_MAX = 10_000
_BITS = 10


class TopicUses:
    """Ids of topics in two periods; `take()` ends one. So a use is known for at least a period.

    One bit per topic, in whole numbers of 1,024 bits: a million topics take 150 KB.
    """

    def __init__(self) -> None:
        self._now: dict[int, int] = {}  # upper part of the ids -> bits by the lower part
        self._before: dict[int, int] = {}
        self._keys: set[bytes] = set()

    def note_pull(self, key: bytes, topics: Iterable[tuple[str, int]], find: Callable[[str], Topic | None]) -> None:
        """A pull has named these topics, (stored name, queues); `key` is their encoded form."""
        if key in self._keys:
            return
        if len(self._keys) >= KEYS_MAX:
            self._keys.clear()
        self._keys.add(key)
        self.note(topic.id for name, _ in topics if (topic := find(name)) is not None)

    def note(self, topic_ids: Iterable[int]) -> None:
        """Requests have named these topics."""
        for topic_id in topic_ids:
            upper = topic_id >> _BITS
            self._now[upper] = self._now.get(upper, 0) | 1 << (topic_id & (1 << _BITS) - 1)

    def has(self, topic_id: int) -> bool:
        """Whether the topic was named in this period or in the one before."""
        upper, lower = topic_id >> _BITS, topic_id & (1 << _BITS) - 1
        return bool((self._now.get(upper, 0) | self._before.get(upper, 0)) >> lower & 1)

    def take(self) -> Iterator[int]:
        """Begin a new period; yields the topics of the one that ends."""
        self._before, self._now = self._now, {}
        self._keys.clear()
        for upper, bits in self._before.items():
            for lower in range(bits.bit_length()):
                if bits >> lower & 1:
                    yield (upper << _BITS) + lower

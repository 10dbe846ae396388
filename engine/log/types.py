"""Values that the log returns: topics, and slices of records."""

from typing import NamedTuple

from common.names import split_stored_name, stored_name

LEASES_KEY = b"\0leases"
"""Key of the progress that tells the time of leases: see engine/delivery/leases.py."""


class Topic(NamedTuple):
    """A topic as the log knows it. Its id is never used for another topic; its number of queues only grows.

    Attributes:
        queues: 0 only in the record that forgets a topic.
        made_ms: time of its creation by its definition; 0: unknown. A topic that was deleted and created again under
            its name has another one, and another id.
    """

    id: int
    name: str
    queues: int
    made_ms: int = 0

    @classmethod
    def stored(cls, id: int, stored: str, queues: int) -> "Topic":
        """The topic of a TOPIC record."""
        name, made_ms = split_stored_name(stored)
        return cls(id, name, queues, made_ms)

    @property
    def stored_name(self) -> str:
        """The name in its TOPIC record."""
        return stored_name(self.name, self.made_ms)


class RecordSlice(NamedTuple):
    """Consecutive records of one queue that were stored in one batch, as they lie in the log.

    `records` are `count` records back to back, each u32 size (little-endian, of what follows), u8 flags, 16 bytes of
    id when flags has bit 0, then the message in Thrift binary. The checksum of their batch has been verified.
    """

    first_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    stored_at_ms: int
    records: bytes


QueueEnd = tuple[int, int, int]
"""(topic id, queue, next offset)"""

"""Values that the log returns: topics, and slices of records."""

from typing import NamedTuple


class Topic(NamedTuple):
    """A topic as the log knows it. Its id is never used for another name; its number of queues only grows."""

    id: int
    name: str
    queues: int


class RecordSlice(NamedTuple):
    """Consecutive records of one queue that were stored in one batch, as they lie in the log.

    `records` are `count` records back to back, each u32 size (little-endian, of what follows), u8 flags, 16 bytes of
    id when flags has bit 0, then the message in Thrift binary. The checksum of their batch has been verified.
    """

    first_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    stored_at_ms: int
    records: bytes

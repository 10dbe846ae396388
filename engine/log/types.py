"""The values that the log hands out."""

from typing import NamedTuple


class Topic(NamedTuple):
    """A topic as the log knows it. The id is never used again for another name; the number of queues only grows."""

    id: int
    name: str
    queues: int


class Piece(NamedTuple):
    """Consecutive records of one queue that were stored together, as they lie in the log.

    `records` are `count` records back to back, each u32 size (little-endian, of what follows), u8 flags, 16 bytes of
    id when flags has bit 0, then the message in Thrift binary. Their batch's checksum has been verified.
    """

    first_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a piece
    stored_at_ms: int
    records: bytes

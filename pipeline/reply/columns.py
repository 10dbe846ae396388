"""The columns of a delivery, and the buffers that each form of the reader fills.

A column is the tuple of its Arrow buffers, in Arrow's order. Integers are little-endian.

| kind | buffers |
|---|---|
| INT, LONG | validity, values |
| TEXT, BINARY | validity, offsets (int32, one more than rows), bytes |
| MAP | validity, offsets of entries, offsets of names, bytes of names, offsets of values, bytes of values |

The validity is None where no row is null.
"""

from typing import NamedTuple

TOPIC, QUEUE, OFFSET, ID, KEY, TAG, BODY, PROPERTIES, STORED_AT, ATTEMPT, SOURCE = range(11)
NAMES = ("topic", "queue", "offset", "id", "key", "tag", "body", "properties", "stored_at", "attempt", "source")
ALL = (1 << len(NAMES)) - 1

Column = tuple[bytes | None, ...]


class Deliveries(NamedTuple):
    """The deliveries of one reply.

    Attributes:
        row_count: number of deliveries that passed the row filter.
        scanned: number of all deliveries.
        columns: by number of the column; None for those that were not wanted.
        start: of the list's elements' header in the frame (element type and count).
        end: of the list in the frame.
    """

    row_count: int
    columns: list[Column | None]
    start: int
    end: int
    scanned: int

"""End of a read within one segment: its reason, and where the read continues."""

from typing import NamedTuple

DONE, BELOW, HOLE, DAMAGED, UNREADABLE = range(5)
"""Limits reached, or no more batches here; the queue begins above the offset; offsets are missing; a batch does not
verify; the disk cannot read a batch."""


class ReadEnd(NamedTuple):
    """State of a read that `BatchReader.read` has ended.

    `offset` is the next one to read: at a HOLE the first one after it, when DAMAGED or UNREADABLE the one after the
    bad batch.
    `bad_at` and `bad_bytes` are the byte address and size of the bad batch, else 0.
    """

    how: int
    offset: int
    records_left: int
    bytes_left: int
    bad_at: int = 0
    bad_bytes: int = 0

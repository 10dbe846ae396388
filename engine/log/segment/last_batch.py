"""The last batch of a segment, which ties the files beside the segment to it."""

from typing import NamedTuple


class LastBatch(NamedTuple):
    """Address, checksum and time of a segment's last whole batch.

    The checksum comes from the appender or from a scan, never from the file: the disk may not be able to read it when
    the segment is sealed, and a file beside it without the checksum would be taken for one of another state.
    """

    at: int = 0
    crc: int = 0
    stored_ms: int = 0


NO_BATCH = LastBatch()

"""Selection of stored records by one filter. The reference of _select.pyx.

Record: u32 size of what follows ‖ u8 flags ‖ [bit 0: 16 bytes of assigned id] ‖ the message (docs/format/log.md).
"""

import struct
from collections.abc import Iterator

from common.filter.match import Filter
from engine.link.record import HAS_ID

_U32 = struct.Struct("<I")
_ID_SIZE = 16

SelectedRange = tuple[int, int, int, int]
"""(index of the first record, count, its first byte, the byte after the last)"""


def messages(records: bytes, start: int) -> Iterator[bytes]:
    """Yield the messages of the records from byte `start` on."""
    at = start
    while at < len(records):
        end = at + 4 + _U32.unpack_from(records, at)[0]
        yield records[at + 5 + (_ID_SIZE if records[at + 4] & HAS_ID else 0) : end]
        at = end


def select(
    filter_: Filter, records: bytes, start: int, messages_max: int, bytes_max: int, has_messages: bool
) -> tuple[int, list[SelectedRange]]:
    """Decide the records from byte `start` on, until `messages_max` are selected or one does not fit into `bytes_max`.

    Args:
        has_messages: the pull has messages already; else the first selected one always fits.

    Returns:
        The number of decided records, and the ranges of the selected ones.
    """
    ranges: list[SelectedRange] = []
    index, at, selected = 0, start, 0
    while at < len(records) and selected < messages_max:
        end = at + 4 + _U32.unpack_from(records, at)[0]
        message = at + 5 + (_ID_SIZE if records[at + 4] & HAS_ID else 0)
        if filter_.passes(records[message:end]):
            if end - at > bytes_max and (has_messages or ranges):
                break
            bytes_max -= end - at
            selected += 1
            if ranges and ranges[-1][0] + ranges[-1][1] == index:
                first, count, byte, _ = ranges[-1]
                ranges[-1] = (first, count + 1, byte, end)
            else:
                ranges.append((index, 1, at, end))
        index, at = index + 1, end
    return index, ranges

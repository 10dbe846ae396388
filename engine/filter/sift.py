"""A filter over stored records. The reference of _sift.pyx.

Record: u32 size of what follows ‖ u8 flags ‖ [bit 0: 16 bytes of assigned id] ‖ the message (docs/format/log.md).
"""

import struct
from collections.abc import Iterator

_U32 = struct.Struct("<I")
_ID_FLAG, _ID_SIZE = 1, 16

Run = tuple[int, int, int, int]


def messages(records: bytes, start: int) -> Iterator[bytes]:
    """The messages of the records from byte `start` on."""
    at = start
    while at < len(records):
        end = at + 4 + _U32.unpack_from(records, at)[0]
        yield records[at + 5 + (_ID_SIZE if records[at + 4] & _ID_FLAG else 0) : end]
        at = end


def sift(filter_, records: bytes, start: int, most: int, bytes_max: int, some: bool) -> tuple[int, list[Run]]:
    """Go through the records from byte `start` until `most` have passed, or one that passes does not fit into `bytes_max`.

    Args:
        some: the pull has got something already; else the first one that passes always fits.

    Returns:
        How many records have been decided, and the runs of those that passed: (index of the first, count, its byte, the
        byte behind the last).
    """
    runs: list[Run] = []
    index, at, passed = 0, start, 0
    while at < len(records) and passed < most:
        end = at + 4 + _U32.unpack_from(records, at)[0]
        message = at + 5 + (_ID_SIZE if records[at + 4] & _ID_FLAG else 0)
        if filter_.passes(records[message:end]):
            if end - at > bytes_max and (some or runs):
                break
            bytes_max -= end - at
            passed += 1
            if runs and runs[-1][0] + runs[-1][1] == index:
                first, count, byte, _ = runs[-1]
                runs[-1] = (first, count + 1, byte, end)
            else:
                runs.append((index, 1, at, end))
        index, at = index + 1, end
    return index, runs

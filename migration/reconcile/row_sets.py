"""Windows of rows, and the comparison of sorted rows of both sides. Reference of `_row_sets.pyx`."""

import struct
from collections.abc import Collection, Iterator
from itertools import groupby

from migration.reconcile.rows import OFFSET_MAX, ROW, ROW_SIZE

WINDOW = struct.Struct("<QQQQQQ")
"""Count ‖ bytes of body ‖ XOR of the ids' hashes ‖ XOR of the contents' hashes ‖ lowest offset ‖ highest offset."""

KAFKA, ENGINE = 0, 1


def fold(rows: bytes, windows: dict[int, bytearray]) -> None:
    """Add rows to the windows of their minutes; see WINDOW."""
    for shown, content, offset, minute, size in ROW.iter_unpack(rows):
        window = windows.get(minute)
        if window is None:
            window = windows[minute] = bytearray(WINDOW.pack(0, 0, 0, 0, OFFSET_MAX, 0))
        count, total, ids, contents, lowest, highest = WINDOW.unpack(window)
        at = offset & OFFSET_MAX
        WINDOW.pack_into(
            window, 0, count + 1, total + size, ids ^ shown, contents ^ content, min(lowest, at), max(highest, at)
        )


def chosen(rows: bytes, minutes: Collection[int]) -> bytes:
    """The rows of these minutes."""
    return b"".join(rows[at : at + ROW_SIZE] for at in range(0, len(rows), ROW_SIZE) if _minute(rows, at) in minutes)


def _minute(rows: bytes, at: int) -> int:
    return int.from_bytes(rows[at + 24 : at + 28], "big")


def holding(rows: bytes, ids: Collection[int]) -> bytes:
    """The rows of ids with these hashes."""
    return b"".join(row for row in _split(rows) if int.from_bytes(row[:8], "big") in ids)


def ordered(rows: bytes) -> bytes:
    """The rows by id, content and offset."""
    return b"".join(sorted(_split(rows)))


def _split(rows: bytes) -> Iterator[bytes]:
    return (rows[at : at + ROW_SIZE] for at in range(0, len(rows), ROW_SIZE))


def differing(kafka: bytes, engine: bytes) -> bytes:
    """The rows of the ids whose contents are not the same on both sides, Kafka's first per id.

    The second u32, the size, is replaced by the side: KAFKA or ENGINE. Both arguments are in order.
    """
    found: list[bytes] = []
    sides = [dict(_by_id(kafka)), dict(_by_id(engine))]
    for shown in sorted({*sides[KAFKA], *sides[ENGINE]}):
        rows = [side.get(shown, []) for side in sides]
        if [each[8:16] for each in rows[KAFKA]] != [each[8:16] for each in rows[ENGINE]]:
            found += [each[:28] + side.to_bytes(4, "big") for side in (KAFKA, ENGINE) for each in rows[side]]
    return b"".join(found)


def _by_id(rows: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    return ((shown, list(group)) for shown, group in groupby(_split(rows), key=lambda row: row[:8]))

"""Columns of the rows to send, as the buffers of their Arrow arrays.

A text column is (validity, offsets, bytes, first): buffers of the array, None for no validity, and the index of its
first row in them. A column of maps is (validity, offsets, first, names, values), with two text columns. A column that
the rows lack is None.
"""

from typing import Any, NamedTuple

import pyarrow as pa

TextColumn = tuple[Any, Any, Any, int]
MapColumn = tuple[Any, Any, int, TextColumn, TextColumn]


class MessageColumns(NamedTuple):
    """Columns in the order in which `encode_messages` writes the fields."""

    topic: TextColumn | None
    body: TextColumn | None
    key: TextColumn | None
    tag: TextColumn | None
    properties: MapColumn | None
    id: TextColumn | None


def text_column(array: pa.Array) -> TextColumn:
    """Buffers of an array of type string or binary."""
    validity, offsets, data = array.buffers()
    return (validity if array.null_count else None, offsets or b"\0\0\0\0", data or b"", array.offset)


def map_column(array: pa.MapArray) -> MapColumn:
    validity, offsets = array.buffers()[:2]
    entries = array.values
    names, values = entries.field(0), entries.field(1)
    return (
        validity if array.null_count else None,
        offsets or b"\0\0\0\0",
        array.offset,
        text_column(names.cast(pa.string())),
        text_column(values.cast(pa.string())),
    )

"""Arrow record batches from the buffers of a reply, and the schema that Spark sees."""

import pyarrow as pa

from pipeline.reply import columns as c
from pipeline.reply.columns import Column, Deliveries

MAP_TYPE = pa.map_(pa.string(), pa.string())
TYPES = {
    "topic": pa.string(), "queue": pa.int32(), "offset": pa.int64(), "id": pa.string(), "key": pa.string(),
    "tag": pa.string(), "body": pa.binary(), "properties": MAP_TYPE, "stored_at": pa.timestamp("us", tz="UTC"),
    "attempt": pa.int32(), "source": pa.string(),
}  # fmt: skip


def record_batch(deliveries: Deliveries, names: tuple[str, ...]) -> pa.RecordBatch:
    """A batch with the named columns, in their order; the buffers are not copied."""
    arrays = []
    for name in names:
        column = deliveries.columns[c.NAMES.index(name)]
        assert column is not None
        arrays.append(_array(TYPES[name], deliveries.row_count, column))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def wanted_bits(names: tuple[str, ...]) -> int:
    """The bit set of columns that `read_deliveries` takes."""
    return sum(1 << c.NAMES.index(name) for name in names)


def _array(kind: pa.DataType, count: int, column: Column) -> pa.Array:
    buffers = [None if each is None else pa.py_buffer(each) for each in column]
    if kind != MAP_TYPE:
        return pa.Array.from_buffers(kind, count, buffers)
    entries = _entries(column[1], count)
    names = pa.Array.from_buffers(pa.string(), entries, [None, *buffers[2:4]])
    values = pa.Array.from_buffers(pa.string(), entries, [None, *buffers[4:6]])
    pairs = pa.StructArray.from_arrays([names, values], fields=[MAP_TYPE.key_field, MAP_TYPE.item_field])
    return pa.Array.from_buffers(MAP_TYPE, count, buffers[:2], children=[pairs])


def _entries(offsets: bytes | None, count: int) -> int:
    """The number of entries of all maps: the last of their offsets."""
    assert offsets is not None
    return int.from_bytes(offsets[4 * count : 4 * count + 4], "little")

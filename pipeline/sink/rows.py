"""The rows of a write: the columns that they may have, and these as buffers."""

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, MapType, StringType, StructType

from pipeline.errors import OptionsError
from pipeline.options import MALFORMED, WriteOptions
from pipeline.reply.columns import NAMES
from pipeline.sink.columns import MessageColumns, TextColumn, map_column, text_column
from pipeline.sink.ids import SOURCE_COORDINATES

TEXT, NUMBER = (StringType,), (IntegerType, LongType)
ALLOWED: dict[str, tuple[type[DataType], ...]] = {
    "topic": TEXT, "body": (BinaryType, StringType), "key": TEXT, "tag": TEXT, "properties": (MapType,),
    "queue": NUMBER, "offset": NUMBER, "source_topic": TEXT, "source_queue": NUMBER, "source_offset": NUMBER,
}  # fmt: skip
IGNORED = {*NAMES, *SOURCE_COORDINATES, MALFORMED} - ALLOWED.keys()
"""Columns of a read that a message sent anew does not have."""


def check_rows(options: WriteOptions, schema: StructType) -> None:
    """Raise OptionsError, with all faults, when rows of this schema cannot be sent."""
    types = {field.name: field.dataType for field in schema.fields}
    faults = []
    for name in sorted(types.keys() - IGNORED - {options.id_column, options.due_column}):
        allowed = ALLOWED.get(name)
        if allowed is None:
            faults.append(f"column {name}: is no part of a message: use {', '.join(ALLOWED)}, or name it in idColumn")
        elif not isinstance(types[name], allowed):
            names = " or ".join(each.typeName() for each in allowed)
            faults.append(f"column {name}: type {types[name].simpleString()}: use {names}")
    if not options.topic and "topic" not in types:
        faults.append("topic: missing: name the topic in the option or in a column")
    if options.id_column and not isinstance(types.get(options.id_column), StringType):
        faults.append(f"idColumn {options.id_column!r}: use the name of a column of type string")
    if options.due_column and not isinstance(types.get(options.due_column), LongType):
        faults.append(f"dueColumn {options.due_column!r}: use the name of a column of type bigint: milliseconds")
    if "body" not in types:
        faults.append("column body: missing: use binary or string")
    if faults:
        raise OptionsError(faults)


def due_column(options: WriteOptions, batch: pa.RecordBatch) -> list[int] | None:
    """When each row is due; one without a time is due at once. None: without option `dueColumn`."""
    if not options.due_column:
        return None
    return [each or 0 for each in batch.column(options.due_column).to_pylist()]


def message_columns(options: WriteOptions, batch: pa.RecordBatch, ids: pa.Array) -> MessageColumns:
    """The buffers of a batch's messages. The batch must live as long as they do."""

    def text(name: str) -> TextColumn | None:
        if name not in batch.schema.names:
            return None
        kind = pa.binary() if name == "body" else pa.string()
        return text_column(batch.column(name).cast(kind))

    topic = text_column(pa.array([options.topic] * len(batch), pa.string())) if options.topic else text("topic")
    properties = map_column(batch.column("properties")) if "properties" in batch.schema.names else None
    return MessageColumns(topic, text("body"), text("key"), text("tag"), properties, text_column(ids))

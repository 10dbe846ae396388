"""The schema of a read."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.options import MALFORMED, ReadOptions

TYPES: dict[str, DataType] = {
    "topic": StringType(), "queue": IntegerType(), "offset": LongType(), "id": StringType(), "key": StringType(),
    "tag": StringType(), "body": BinaryType(), "properties": MapType(StringType(), StringType()),
    "stored_at": TimestampType(), "attempt": IntegerType(), "source": StringType(), MALFORMED: BinaryType(),
}  # fmt: skip


def schema_of(options: ReadOptions) -> StructType:
    return StructType([StructField(name, _type(options, name)) for name in options.columns])


def body_type(options: ReadOptions) -> pa.DataType | None:
    """The Arrow type of a body that is decoded as JSON."""
    return None if options.body_schema is None else to_arrow_type(options.body_schema, timezone="UTC")


def _type(options: ReadOptions, name: str) -> DataType:
    if name == "body" and options.body == "string":
        return StringType()
    if name == "body" and options.body_schema is not None:
        return options.body_schema
    return TYPES[name]

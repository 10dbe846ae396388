"""Messages as producers send them: without ids of their own, in calls of 1000."""

from array import array

import pyarrow as pa

from bench.spark.sides import SparkSide
from pipeline.options import write_options
from pipeline.sink.columns import MessageColumns, TextColumn, text_column
from pipeline.sink.sends import BatchSends

BODY = b"x" * 200
PART = 50_000


def fill(side: SparkSide, topic: str, messages: int) -> None:
    """Send so many messages to a topic, from one connection."""
    with BatchSends(write_options(side.write)) as sends:
        for first in range(0, messages, PART):
            count = min(PART, messages - first)
            counts, refused = sends.send(columns_of(topic, count, has_ids=False), array("I", range(count)))
            assert counts.stored == count and not refused


def columns_of(topic: str, messages: int, has_ids: bool) -> MessageColumns:
    """Messages with a body of 200 bytes and one of 1000 keys."""

    def text(values: list, kind: pa.DataType) -> TextColumn:
        return text_column(pa.array(values, kind))

    ids = text([f"{number:040}" for number in range(messages)], pa.string()) if has_ids else None
    keys = text([f"key-{number % 1000}" for number in range(messages)], pa.string())
    return MessageColumns(
        text([topic] * messages, pa.string()), text([BODY] * messages, pa.binary()), keys, None, None, ids
    )

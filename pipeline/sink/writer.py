"""The sink: `df.write.format("penstock")` and `df.writeStream.format("penstock")`.

Every message has an id that is the same in each attempt, so the engine stores it once. Rows are sent by the tasks; a
commit has nothing left to do, and is therefore idempotent however often and late Spark calls it.
"""

import logging
import uuid
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from common.contract import Code
from pipeline.errors import PipelineError
from pipeline.options import WriteOptions
from pipeline.sink.ids import WriteWork, ids_of
from pipeline.sink.messages import RowResult
from pipeline.sink.pace import DueTimes
from pipeline.sink.refused import RefusedRows
from pipeline.sink.rows import due_column, message_columns
from pipeline.sink.sends import BatchSends, SendCounts
from pipeline.sink.window import warn_of_late_batch

log = logging.getLogger("penstock.pipeline")

QUERY_PROPERTY, BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a task by which Spark tells the streaming query and its batch."""
NULL_ID = "id is null: a message without an id may be stored twice"


@dataclass
class WrittenRows(WriterCommitMessage):
    """What one task has written."""

    stored: int
    duplicates: int
    retried: int
    refused: int


def write_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch], work: WriteWork) -> WrittenRows:
    """Send the rows of a task; returns when each is stored, or refused and kept aside."""
    refused, counts, row = RefusedRows(options.refused_path, work), SendCounts(), 0
    due = DueTimes()
    with BatchSends(options) as sends:
        for batch in batches:
            ids = ids_of(options, batch, work, row)
            row += len(batch)
            nulls = [RowResult(index, Code.INVALID, 0, NULL_ID) for index in _null_rows(ids)]
            refused.add(batch, ids, nulls)
            skipped = {each.row for each in nulls}
            rows = array(
                "I", (each for each in range(len(batch)) if each not in skipped) if nulls else range(len(batch))
            )
            columns, due_ms = message_columns(options, batch, ids), due_column(options, batch)
            for part in due.parts(rows, due_ms):
                sent, bad = sends.send(columns, part)
                refused.add(batch, ids, bad)
                counts = counts.plus(sent)
    if path := refused.finish():
        log.warning("file=%s: %d refused rows", path, refused.count)
    return WrittenRows(*counts, refused.count)


def _null_rows(ids: pa.Array) -> list[int]:
    return [index for index, each in enumerate(ids.is_null().to_pylist()) if each] if ids.null_count else []


def _tell(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    found = [cast(WrittenRows, each) for each in messages if each is not None]
    log.info(
        "%s: %d messages stored, %d of these before, %d sent again, %d refused", what,
        sum(each.stored for each in found), sum(each.duplicates for each in found),
        sum(each.retried for each in found), sum(each.refused for each in found),
    )  # fmt: skip


class PenstockWriter(DataSourceArrowWriter):
    """A batch write. A repeated task of this job has the same ids; a second run of the program has new ones, unless
    they come from a column or from source coordinates."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        return write_rows(self.options, iterator, WriteWork(self.job, 0, context.partitionId()))

    def commit(self, messages: list) -> None:
        _tell("write", messages)

    def abort(self, messages: list) -> None:
        log.warning("write: failed: messages that were sent stay stored; repeat it with the same ids to complete it")


class PenstockStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. The ids of a batch are the same when Spark repeats it after a failure."""

    def __init__(self, options: WriteOptions, checkpoint: str = "") -> None:
        self.options, self.checkpoint = options, checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise PipelineError(
                f"Spark does not tell {QUERY_PROPERTY} and {BATCH_PROPERTY}: use idColumn with another version"
            )
        return write_rows(self.options, iterator, WriteWork(query, int(batch), context.partitionId()))

    def commit(self, messages: list, batchId: int) -> None:
        _tell(f"batch {batchId}", messages)
        warn_of_late_batch(self.options, self.checkpoint, batchId)

    def abort(self, messages: list, batchId: int) -> None:
        log.warning("batch %d: failed: Spark repeats it with the same ids", batchId)

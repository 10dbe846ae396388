"""The streaming source: `spark.readStream.format("penstock")`.

Spark calls the offset methods in one long-lived process per query, and `read` in tasks. It never reaches `stop`, so
nothing is held between calls but a connection.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from common.contract import Position
from pipeline.options import LATEST, ReadOptions, StartAt
from pipeline.proxy.pulls import PositionPulls
from pipeline.reply.arrow import wanted_bits
from pipeline.reply.columns import BODY
from pipeline.source.batch_reader import bounds_of, offsets_of, read_columns
from pipeline.source.checkpoint import from_checkpoint, to_checkpoint
from pipeline.source.pruning import row_filter
from pipeline.source.ranges import Offsets, cut, limited, not_before, ranges_between

SAMPLE_MESSAGES = 200
SAMPLE_BYTES = 256 << 10


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads from checkpointed offsets; no group is moved, so progress is in Spark's checkpoint alone.

    New queues of a topic, and topics that match the pattern later, are read from offset 0; a pattern is resolved at
    each trigger. A batch that Spark repeats reads the same offsets.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._pulls: PositionPulls | None = None
        self._target: Offsets | None = None

    def initialOffset(self) -> dict:
        with PositionPulls(self.options.endpoints) as pulls:
            bounds = bounds_of(pulls, self.options)
            return to_checkpoint(offsets_of(pulls, self.options.start or StartAt(LATEST), bounds))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.messages_max:
            return ReadMaxRows(self.options.messages_max)
        return ReadMaxBytes(self.options.bytes_max) if self.options.bytes_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """The end of the next batch. Both options hold where both are given; bytes are those of sampled messages."""
        begin = from_checkpoint(start, self.options)
        end = not_before(begin, self._ends() if self._target is None else self._target)
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        if not isinstance(limit, ReadAllAvailable) and self.options.bytes_max and end != begin:
            end = self._within_bytes(begin, end)
        return to_checkpoint(end)

    def reportLatestOffset(self) -> dict:
        return to_checkpoint(self._ends())

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        ranges = ranges_between(from_checkpoint(start, self.options), from_checkpoint(end, self.options))
        return list(cut(ranges, self.options.partitions_min))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_columns(self.options, partition, row_filter((), self.options.filter))

    def __getstate__(self) -> Mapping[str, Any]:
        """A task gets the options only: neither a connection nor the minted credential is sent to it."""
        return {"options": self.options, "_pulls": None, "_target": None}

    def _ends(self) -> Offsets:
        bounds = bounds_of(self._connected(), self.options)
        return {each: found.end for each, found in bounds.items()}

    def _within_bytes(self, begin: Offsets, end: Offsets) -> Offsets:
        """The end of a batch of about `maxBytesPerTrigger`: as many messages as fit by the size of the next ones."""
        (part, *_) = sorted(ranges_between(begin, end), key=lambda each: -each.count)
        position = [Position(part.topic, part.queue, offset=part.start, end_offset=part.end)]
        deliveries = self._connected().pull(position, SAMPLE_MESSAGES, SAMPLE_BYTES, wanted_bits(("body",))).deliveries
        column = deliveries.columns[BODY]
        if not deliveries.row_count or column is None:
            return end
        mean = max(1, len(column[-1] or b"") // deliveries.row_count)
        return limited(begin, end, max(1, self.options.bytes_max // mean))

    def _connected(self) -> PositionPulls:
        if self._pulls is None:
            self._pulls = PositionPulls(self.options.endpoints)
        return self._pulls

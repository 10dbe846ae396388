"""Archives one range of offsets: one Parquet file per hour of stored time, then the entry of the manifest."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.archive.manifest import RangeEntry, hour_of, write_entry
from pipeline.archive.place import ArchivePlace
from pipeline.archive.row_hash import RangeHash
from pipeline.options import ReadOptions
from pipeline.source.ranges import OffsetRange
from pipeline.source.read_range import read_range

COLUMNS = ("queue", "offset", "id", "key", "tag", "body", "properties", "stored_at")
"""The topic is a folder, so Spark has it as a column, too."""


class HourFiles:
    """The files of one range by hour; at most one batch of rows is in memory."""

    def __init__(self, place: ArchivePlace, part: OffsetRange) -> None:
        self._place, self._part = place, part
        self._writers: dict[str, tuple[str, pq.ParquetWriter]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        hours = pc.floor_temporal(batch.column("stored_at"), unit="hour")
        for hour in pc.unique(hours):
            name = self._name(hour)
            if name not in self._writers:
                work = self._place.make_work(name)
                writer = pq.ParquetWriter(
                    self._place.path(work), batch.schema, filesystem=self._place.files, compression="zstd"
                )
                self._writers[name] = work, writer
            self._writers[name][1].write_batch(batch.filter(pc.equal(hours, hour)))

    def publish(self) -> tuple[str, ...]:
        """Finish the files and rename them into place; returns their names."""
        for name, (work, writer) in self._writers.items():
            writer.close()
            self._place.publish(work, name)
        return tuple(self._writers)

    def _name(self, hour: Any) -> str:
        part = self._part
        folder = f"topic={part.topic}/hour={hour.as_py():%Y-%m-%dT%H}"
        return f"{folder}/queue-{part.queue}-{part.start:020}-{part.end:020}.parquet"


def archive_range(options: ReadOptions, url: str, newest_hours: Mapping[str, str], part: OffsetRange) -> RangeEntry:
    """Archive a range. Until its entry is written, a rerun archives it again, into files of the same names or removes them."""
    place = ArchivePlace(url)
    files, hashed, count = HourFiles(place, part), RangeHash(), 0
    for batch in read_range(options, COLUMNS, part):
        files.write(batch)
        hashed.add(batch)
        count += len(batch)
    names, newest = files.publish(), newest_hours.get(part.topic, "")
    late = tuple(sorted({hour for hour in map(hour_of, names) if hour < newest}))
    entry = RangeEntry(part.topic, part.queue, part.start, part.end, count, hashed.hex(), names, late=late)
    write_entry(place, entry)
    return entry

"""The rows that an archive has of one range, checked against its entry."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.archive.manifest import RangeEntry
from pipeline.archive.place import ArchivePlace
from pipeline.archive.row_hash import RangeHash
from pipeline.errors import ArchiveDamaged


def entry_faults(url: str, entry: RangeEntry) -> list[str]:
    """Compare the files of one entry with it."""
    try:
        checked_rows(ArchivePlace(url), entry)
    except ArchiveDamaged as error:
        return [str(error)]
    return []


def checked_rows(place: ArchivePlace, entry: RangeEntry) -> Any:
    """The rows of an entry's files in order of their offsets; None without a row.

    Raises:
        ArchiveDamaged: they do not match the entry.
    """
    name = f"topic {entry.topic} queue {entry.queue} from {entry.start} to {entry.end}"
    try:
        tables = [pq.ParquetFile(place.files.open_input_file(place.path(each))).read() for each in entry.files]
    except (OSError, pa.ArrowException) as error:
        raise ArchiveDamaged(f"{name}: {' '.join(str(error).split())}") from error
    rows = pa.concat_tables(tables).sort_by("offset").combine_chunks() if tables else None
    count = 0 if rows is None else len(rows)
    if count != entry.count:
        raise ArchiveDamaged(f"{name}: {count} rows instead of {entry.count}")
    if rows is None:
        return None
    bounds = pc.min_max(rows.column("offset")).as_py()
    if bounds["min"] < entry.start or bounds["max"] >= entry.end:
        raise ArchiveDamaged(f"{name}: has offsets from {bounds['min']} to {bounds['max']}")
    hashed = RangeHash()
    hashed.add(rows)
    if hashed.hex() != entry.hash:
        raise ArchiveDamaged(f"{name}: the hash of the rows differs from the manifest's")
    return rows

"""Hours of an archive: what each has, and whether it got rows after a later hour had been archived."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from pipeline.archive.manifest import hour_of, read_manifest
from pipeline.archive.place import ArchivePlace


@dataclass
class ArchivedHour:
    """One hour of stored time of a topic.

    Attributes:
        is_late: rows came after a run had archived a later hour: who has read this hour before reads it again.
    """

    topic: str
    hour: str
    messages: int = 0
    files: int = 0
    size_bytes: int = 0
    is_late: bool = False


def archived_hours(url: str, topics: Sequence[str] = ()) -> list[ArchivedHour]:
    """By topic and hour, from the files that the manifest names. Raises ArchiveDamaged, OSError."""
    place = ArchivePlace(url)
    found: dict[tuple[str, str], ArchivedHour] = {}
    sizes: dict[str, dict[str, int]] = {}
    for entry in read_manifest(place, topics):
        if entry.topic not in sizes:
            sizes[entry.topic] = place.sizes(f"topic={entry.topic}")
        for name in entry.files:
            hour = hour_of(name)
            one = found.setdefault((entry.topic, hour), ArchivedHour(entry.topic, hour))
            one.messages += pq.ParquetFile(place.files.open_input_file(place.path(name))).metadata.num_rows
            one.files += 1
            one.size_bytes += sizes[entry.topic].get(name, 0)
            one.is_late |= hour in entry.late
    return [found[key] for key in sorted(found)]

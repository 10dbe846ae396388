"""Files that a run that died has left in an archive. Each job removes them before its own work."""

from collections.abc import Sequence

from pipeline.archive.manifest import read_whole_manifest
from pipeline.archive.place import WORK, ArchivePlace


def leftovers(place: ArchivePlace, topics: Sequence[str] = ()) -> list[str]:
    """Files of these topics, or of all, that no entry names; entries that a compaction has replaced; half-written files."""
    entries, replaced = read_whole_manifest(place, topics)
    named = {name for entry in entries for name in entry.files}
    folders = [f"topic={topic}" for topic in topics or sorted({each.topic for each in entries})]
    found = [name for folder in folders for name in place.names(folder)]
    return [each.name for each in replaced] + [name for name in found if name not in named] + place.names(WORK)

"""The manifest of an archive: one entry per range of a queue, which is written after the range's files."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from pipeline.archive.place import MANIFEST, ArchivePlace
from pipeline.errors import ArchiveDamaged
from pipeline.source.ranges import OffsetRange


@dataclass(frozen=True)
class RangeEntry:
    """What the archive has of offsets `start` to before `end` of a queue.

    Attributes:
        hash: of the rows, by RangeHash.
        files: their paths in the archive, in the order of their first rows.
        pruned_ms: when a policy removed the files; 0: they are there.
        late: hours of its rows before the newest hour that was archived when it was written.
    """

    topic: str
    queue: int
    start: int
    end: int
    count: int
    hash: str
    files: tuple[str, ...]
    pruned_ms: int = 0
    late: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{MANIFEST}/{self.topic}/{self.queue}-{self.start:020}-{self.end:020}.json"


def read_manifest(place: ArchivePlace, topics: Iterable[str] = ()) -> list[RangeEntry]:
    """The entries of these topics, or of all, by topic, queue and offset. Raises ArchiveDamaged."""
    return read_whole_manifest(place, topics)[0]


def read_whole_manifest(
    place: ArchivePlace, topics: Iterable[str] = ()
) -> tuple[list[RangeEntry], list[RangeEntry]]:  # fmt: skip
    """The entries, and those that a compaction has replaced: their range is within another one's.

    Raises:
        ArchiveDamaged
    """
    wanted, found = set(topics), []
    for name in place.names(MANIFEST):
        try:
            fields = place.read_json(name)
            entry = RangeEntry(**{**fields, "files": tuple(fields["files"]), "late": tuple(fields.get("late", ()))})
        except (ValueError, TypeError, KeyError) as error:
            raise ArchiveDamaged(f"{name}: no entry of a manifest: {error}") from error
        if not wanted or entry.topic in wanted:
            found.append(entry)
    entries: list[RangeEntry] = []
    replaced: list[RangeEntry] = []
    for entry in sorted(found, key=lambda each: (each.topic, each.queue, each.start, -each.end)):
        last = entries[-1] if entries else None
        is_within = last and (last.topic, last.queue) == (entry.topic, entry.queue) and entry.end <= last.end
        (replaced if is_within else entries).append(entry)
    return entries, replaced


def hour_of(name: str) -> str:
    """The hour of a file's rows, such as 2026-01-31T12; hours sort by time."""
    return name.partition("/hour=")[2].partition("/")[0]


def write_entry(place: ArchivePlace, entry: RangeEntry) -> None:
    place.write_json(entry.name, asdict(entry))


def missing_ranges(
    wanted: Sequence[OffsetRange], entries: Sequence[RangeEntry], messages_max: int
) -> list[OffsetRange]:
    """The parts of the wanted ranges that no entry has, in ranges of at most so many messages."""
    missing = []
    for each in wanted:
        at = each.start
        own = [entry for entry in entries if (entry.topic, entry.queue) == (each.topic, each.queue)]
        for start, end in [*((entry.start, entry.end) for entry in own), (each.end, each.end)]:
            while at < min(start, each.end):
                following = min(at + messages_max, start, each.end)
                missing.append(OffsetRange(each.topic, each.queue, at, following))
                at = following
            at = max(at, end)
    return missing


def manifest_faults(entries: Sequence[RangeEntry]) -> list[str]:
    """Gaps and overlaps between the ranges of each queue, which are in order."""
    faults = []
    for before, after in pairwise(entries):
        if (before.topic, before.queue) == (after.topic, after.queue) and before.end != after.start:
            kind = "gap" if before.end < after.start else "overlap"
            faults.append(f"topic {after.topic} queue {after.queue}: {kind} from {before.end} to {after.start}")
    return faults

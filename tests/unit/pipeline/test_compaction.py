"""Compaction of an archive: after a crash at any of its steps the manifest names all rows once, and a rerun completes it."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pipeline.archive import compaction
from pipeline.archive.compaction import groups_to_join, join_ranges
from pipeline.archive.leftovers import leftovers
from pipeline.archive.manifest import RangeEntry, manifest_faults, read_manifest, write_entry
from pipeline.archive.place import ArchivePlace
from pipeline.archive.row_hash import RangeHash
from pipeline.archive.stored_range import checked_rows
from pipeline.archive.write_range import HourFiles
from pipeline.errors import ArchiveDamaged
from pipeline.source.ranges import OffsetRange

START_S = datetime(2026, 1, 31, 10, 50, tzinfo=UTC).timestamp()
RANGE, RANGES = 5, 4


def archived(place, start, end):
    """Archive a range as a task does; one message per minute."""
    offsets = list(range(start, end))
    times = [int((START_S + 60 * offset) * 1e6) for offset in offsets]
    texts = [f"m-{offset}" for offset in offsets]
    batch = pa.RecordBatch.from_pydict(
        {
            "queue": pa.array([0] * len(offsets), pa.int32()), "offset": pa.array(offsets, pa.int64()),
            "id": texts, "key": texts, "tag": pa.array([None] * len(offsets), pa.string()),
            "body": pa.array([text.encode() for text in texts], pa.binary()),
            "properties": pa.array([[("n", text)] for text in texts], pa.map_(pa.string(), pa.string())),
            "stored_at": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    files, hashed = HourFiles(place, OffsetRange("t", 0, start, end)), RangeHash()
    files.write(batch)
    hashed.add(batch)
    made = RangeEntry("t", 0, start, end, len(batch), hashed.hex(), files.publish())
    write_entry(place, made)
    return made


@pytest.fixture
def archive(tmp_path):
    """A directory with RANGES ranges of RANGE messages; two of the ranges are in two hours or more."""
    place = ArchivePlace(str(tmp_path))
    return tmp_path, tuple(archived(place, RANGE * each, RANGE * (each + 1)) for each in range(RANGES))


def ids(place):
    rows = [checked_rows(place, each) for each in read_manifest(place)]
    return [each for table in rows for each in table.column("id").to_pylist()]


ALL = [f"m-{offset}" for offset in range(RANGE * RANGES)]


class CrashingPlace(ArchivePlace):
    """Fails before one of its changes."""

    left = 0

    def publish(self, work, name):
        self._step()
        super().publish(work, name)

    def remove(self, name):
        self._step()
        super().remove(name)

    def _step(self):
        if CrashingPlace.left == 0:
            raise OSError("crash")
        CrashingPlace.left -= 1


def test_a_crash_at_any_step_leaves_all_rows_once_and_a_rerun_completes_it(archive, monkeypatch):
    url, group = archive
    hours = {name.split("/")[1] for each in group for name in each.files}
    steps, crashes = len(hours) + 1 + sum(1 + len(each.files) for each in group), 0
    for left in range(steps + 1):
        copy = url.parent / f"copy-{left}"
        for path in url.rglob("*"):
            if path.is_file():
                target = copy / path.relative_to(url)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        CrashingPlace.left = left
        place = ArchivePlace(str(copy))
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "ArchivePlace", CrashingPlace)
            try:
                join_ranges(str(copy), group)
            except OSError:
                crashes += 1
        assert ids(place) == ALL
        assert manifest_faults(read_manifest(place)) == []
        for name in leftovers(place):
            place.remove(name)
        for again in groups_to_join(read_manifest(place), 1000):
            join_ranges(str(copy), again)
        (entry,) = read_manifest(place)
        assert (entry.start, entry.end, entry.count, ids(place)) == (0, len(ALL), len(ALL), ALL)
        assert leftovers(place) == []
        assert set(place.names("topic=t")) == set(entry.files)
        assert len(entry.files) == len(hours)
    assert crashes == steps


def test_a_task_that_is_repeated_after_it_has_ended_gives_the_same_entry(archive):
    url, group = archive
    assert join_ranges(str(url), group) == join_ranges(str(url), group)


def test_a_damaged_file_is_not_joined(archive):
    url, group = archive
    (url / group[1].files[0]).write_bytes((url / group[0].files[0]).read_bytes())
    with pytest.raises(ArchiveDamaged, match="from 5 to 10"):
        join_ranges(str(url), group)
    assert len(read_manifest(ArchivePlace(str(url)))) == RANGES


def test_only_neighbours_that_are_small_and_not_pruned_are_joined():
    def entry(start, end, pruned_ms=0, queue=0):
        return RangeEntry("t", queue, start, end, end - start, "", (), pruned_ms)

    entries = [
        entry(0, 10, 1), entry(10, 20), entry(20, 30), entry(30, 40), entry(40, 90), entry(90, 95), entry(97, 99),
        entry(0, 5, queue=1), entry(5, 9, queue=1),
    ]  # fmt: skip
    joined = [[(each.queue, each.start) for each in group] for group in groups_to_join(entries, 25)]
    assert joined == [[(0, 10), (0, 20)], [(1, 0), (1, 5)]]

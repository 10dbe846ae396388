"""Side files of an archive's JSON schema: each range is read once, and a compaction counts nothing twice."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pipeline.archive import json_bodies
from pipeline.archive.compaction import join_ranges
from pipeline.archive.json_bodies import infer_schemas, read_schema
from pipeline.archive.manifest import read_manifest, write_entry
from pipeline.archive.place import ArchivePlace
from pipeline.archive.row_hash import RangeHash
from pipeline.archive.write_range import HourFiles, RangeEntry
from pipeline.errors import ArchiveDamaged
from pipeline.source.ranges import OffsetRange

START_MS = int(datetime(2026, 1, 31, 10, 50, tzinfo=UTC).timestamp() * 1000)


class HereOnly:
    """A session that runs tasks at once, in this process."""

    defaultParallelism = 1

    @property
    def sparkContext(self):
        return self

    def parallelize(self, items, number):
        return SimpleNamespace(foreach=lambda work: [work(each) for each in items])


def archived(place, start, bodies):
    count = len(bodies)
    texts = [f"m-{start + at}" for at in range(count)]
    batch = pa.RecordBatch.from_pydict(
        {
            "queue": pa.array([0] * count, pa.int32()), "offset": pa.array(range(start, start + count), pa.int64()),
            "id": texts, "key": texts, "tag": pa.array([None] * count, pa.string()),
            "body": pa.array(bodies, pa.binary()),
            "properties": pa.array([None] * count, pa.map_(pa.string(), pa.string())),
            "stored_at": pa.array([1000 * (START_MS + start + at) for at in range(count)], pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    files, hashed = HourFiles(place, OffsetRange("t", 0, start, start + count)), RangeHash()
    files.write(batch)
    hashed.add(batch)
    made = RangeEntry("t", 0, start, start + count, count, hashed.hex(), files.publish())
    write_entry(place, made)
    return made


@pytest.fixture
def read(monkeypatch):
    """The ranges that were read, by their starts."""
    found, infer = [], json_bodies.infer_range
    monkeypatch.setattr(json_bodies, "infer_range", lambda url, entry: (found.append(entry.start), infer(url, entry)))
    return found


def test_a_schema_grows_with_the_archive_each_range_is_read_once_and_a_compaction_changes_nothing(tmp_path, read):
    url, place = str(tmp_path), ArchivePlace(str(tmp_path))
    with pytest.raises(ArchiveDamaged, match="has no schema of topic t"):
        read_schema(url, "t")
    one = archived(place, 0, [b'{"a": 1}', b"text", b'{"a": 2}'])
    (found,) = infer_schemas(HereOnly(), url)
    assert (found.bodies, found.no_json, found.schema.simpleString()) == (3, 1, "struct<a:bigint>")
    other = archived(place, 3, [b'{"a": "x", "b": [1.5]}'])
    (found,) = infer_schemas(HereOnly(), url)
    assert read == [0, 3]
    assert read_schema(url, "t").simpleString() == "struct<a:bigint,b:array<double>>"
    a, *_ = found.fields
    assert (a["first_ms"], a["last_ms"], a["conflicts"]) == (START_MS, START_MS + 3, {"string": 1})

    before = json.loads((tmp_path / "_schema" / "t.json").read_text())
    join_ranges(url, (one, other))
    assert len(read_manifest(place)) == 1
    infer_schemas(HereOnly(), url)
    assert json.loads((tmp_path / "_schema" / "t.json").read_text()) == before
    assert read == [0, 3, 0]

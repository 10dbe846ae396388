"""The schema of an archive's JSON bodies, in side files.

`_schema/TOPIC/QUEUE-START-END.json` has the node of one range, which is made once; `_schema/TOPIC.json` has all of the
topic: what a reader uses. A run that died is continued: ranges that have a file are not read again.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipeline.archive.body_schema import Node, add_body, described, merged, schema_of_bodies
from pipeline.archive.manifest import RangeEntry, read_manifest
from pipeline.archive.place import MANIFEST, ArchivePlace
from pipeline.errors import ArchiveDamaged

SCHEMA = "_schema"
ROWS_AT_ONCE = 10_000


class TopicSchema(NamedTuple):
    """
    Attributes:
        fields: one row per field, see `described`.
        no_json: bodies that are no JSON object.
        schema: the type into which most bodies fit; None without a field.
    """

    topic: str
    bodies: int
    no_json: int
    fields: list[dict[str, Any]]
    schema: StructType | None


def infer_schemas(
    spark: SparkSession, url: str, topics: Sequence[str] = (), progress: Callable[[int, int], None] = lambda *_: None
) -> list[TopicSchema]:
    """Read the bodies of ranges that were not read before, and write the schema of each topic anew.

    Raises:
        ArchiveDamaged, or an exception of Spark when a file cannot be read.
    """
    place = ArchivePlace(url)
    entries = [each for each in read_manifest(place, topics) if not each.pruned_ms]
    known = set(place.names(SCHEMA))
    new = [each for each in entries if _part_name(each) not in known]
    done, step = 0, 2 * spark.sparkContext.defaultParallelism
    for first in range(0, len(new), step):
        part = new[first : first + step]
        spark.sparkContext.parallelize(part, len(part)).foreach(partial(infer_range, url))
        done += sum(each.count for each in part)
        progress(done, sum(each.count for each in new))
    return [_write_topic(place, topic) for topic in sorted({each.topic for each in entries})]


def infer_range(url: str, entry: RangeEntry) -> None:
    """Write the node of one range."""
    place, bodies, bad = ArchivePlace(url), 0, 0
    node: Node = {}
    for name in entry.files:
        file = pq.ParquetFile(place.files.open_input_file(place.path(name)))
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=["body", "stored_at"]):
            times = batch.column("stored_at").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
            for body, stored_ms in zip(batch.column("body").to_pylist(), times.to_pylist(), strict=True):
                bodies += 1
                bad += not add_body(node, body, stored_ms)
    place.write_json(_part_name(entry), {"bodies": bodies, "no_json": bad, "node": node})


def read_schema(url: str, topic: str) -> StructType:
    """The inferred schema of a topic. Raises ArchiveDamaged when there is none."""
    place, name = ArchivePlace(url), f"{SCHEMA}/{topic}.json"
    found = place.read_json(name)["schema"] if place.exists(name) else None
    if found is None:
        raise ArchiveDamaged(f"archive {url}: has no schema of topic {topic}: run `penstock pipeline archive schema`")
    return StructType.fromJson(found)


def _part_name(entry: RangeEntry) -> str:
    return entry.name.replace(MANIFEST, SCHEMA, 1)


def _write_topic(place: ArchivePlace, topic: str) -> TopicSchema:
    """The schema of a topic by its parts. Those of ranges that a compaction has joined are within the joined one's."""
    parts = [place.read_json(name) for name in _outermost(place.names(f"{SCHEMA}/{topic}"))]
    node: Node = merged(each["node"] for each in parts)
    schema = schema_of_bodies(node)
    bodies, no_json = (sum(each[name] for each in parts) for name in ("bodies", "no_json"))
    found = TopicSchema(topic, bodies, no_json, described(node), schema)
    place.write_json(f"{SCHEMA}/{topic}.json", found._asdict() | {"schema": schema.jsonValue() if schema else None})
    return found


def _outermost(names: Sequence[str]) -> list[str]:
    """The names of parts whose range is not within that of another one."""
    ranges = sorted((*_range_of(name), name) for name in names)
    kept: list[tuple[int, int, int, str]] = []
    for queue, start, negative_end, name in ranges:
        if not kept or kept[-1][0] != queue or -negative_end > -kept[-1][2]:
            kept.append((queue, start, negative_end, name))
    return [name for *_, name in kept]


def _range_of(name: str) -> tuple[int, int, int]:
    queue, start, end = name.rpartition("/")[2].removesuffix(".json").split("-")
    return int(queue), int(start), -int(end)

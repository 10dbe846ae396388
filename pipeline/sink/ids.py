"""Ids of the messages of a write. The engine stores an id once per topic within its window, which makes a write repeatable.

| rule | id | equal for |
|---|---|---|
| `idColumn` | the column's value | what the program says |
| source coordinates | hash of the source topic, queue, offset | every copy of one stored message |
| row | hash of query or job, batch, partition, row | every attempt at one batch of a query, if its plan gives the same rows |
"""

from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.options import WriteOptions

COORDINATES = ("topic", "queue", "offset")
SOURCE_COORDINATES = ("source_topic", "source_queue", "source_offset")
HASH_BYTES = 12


class WriteWork(NamedTuple):
    """What one task writes. `name`: of the query, or of a job of a batch write."""

    name: str
    batch: int
    partition: int


def coordinates_of(options: WriteOptions, names: list[str]) -> tuple[str, ...]:
    """The columns with source coordinates; empty: there are none.

    Column `topic` is a source only where option `topic` says the target.
    """
    if set(SOURCE_COORDINATES) <= set(names):
        return SOURCE_COORDINATES
    return COORDINATES if options.topic and set(COORDINATES) <= set(names) else ()


def ids_of(options: WriteOptions, batch: pa.RecordBatch, work: WriteWork, first_row: int) -> pa.Array:
    """One id per row, at most 64 characters. Null where a row's id, or a part of its coordinates, is null."""
    if options.id_column:
        return batch.column(options.id_column).cast(pa.string())
    if columns := coordinates_of(options, batch.schema.names):
        topic, queue, offset = (batch.column(name) for name in columns)
        return _joined(_hashes(topic.cast(pa.string())), queue.cast(pa.string()), offset.cast(pa.string()))
    head = f"{_hash(work.name)}-{work.batch}-{work.partition}"
    rows = pa.array(range(first_row, first_row + len(batch)), pa.int64()).cast(pa.string())
    return _joined(pa.scalar(head), rows)


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "-", null_handling="emit_null")


def _hashes(topics: pa.Array) -> pa.Array:
    """The hash of each topic, made once per different topic."""
    coded = topics.dictionary_encode()
    return pa.array([_hash(each) for each in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=HASH_BYTES).hexdigest()

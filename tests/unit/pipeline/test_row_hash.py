"""The hash of a range's rows: the same however they are cut, another one for any change."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.archive.row_hash import RangeHash
from pipeline.reply.arrow import TYPES

NAMES = ("offset", "stored_at", "id", "key", "tag", "body", "properties")
ROWS = [
    {"offset": 0, "stored_at": 5, "id": "a", "key": "k", "tag": None, "body": b"one", "properties": [("n", "1")]},
    {"offset": 1, "stored_at": 5, "id": "b", "key": None, "tag": "t", "body": None, "properties": None},
    {"offset": 2, "stored_at": 7, "id": "c", "key": "", "tag": "t", "body": b"", "properties": []},
    {
        "offset": 3,
        "stored_at": 8,
        "id": "d",
        "key": "kk",
        "tag": None,
        "body": b"two",
        "properties": [("m", "2"), ("o", "")],
    },
]


def hash_of(rows, cuts=()):
    hashed = RangeHash()
    marks = [0, *sorted(cuts), len(rows)]
    for start, end in pairwise(marks):
        part = rows[start:end]
        arrays = [pa.array([row[name] for row in part], TYPES[name]) for name in NAMES]
        hashed.add(pa.RecordBatch.from_arrays(arrays, names=list(NAMES)))
    return hashed.hex()


@given(st.sets(st.integers(0, len(ROWS))))
def test_batches_do_not_change_it(cuts):
    assert hash_of(ROWS, cuts) == hash_of(ROWS)


def test_a_slice_of_a_batch_has_the_hash_of_its_rows():
    arrays = [pa.array([row[name] for row in ROWS], TYPES[name]) for name in NAMES]
    hashed = RangeHash()
    hashed.add(pa.RecordBatch.from_arrays(arrays, names=list(NAMES)).slice(1, 2))
    assert hashed.hex() == hash_of(ROWS[1:3])


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (0, {"body": b"onf"}), (1, {"body": b""}), (2, {"key": None}), (2, {"properties": None}), (3, {"offset": 4}),
        (3, {"properties": [("m", "2o"), ("", "")]}), (0, {"stored_at": 6}), (1, {"tag": "T"}), (0, {"id": "aa"}),
    ],
)  # fmt: skip
def test_any_change_changes_it(row, change):
    changed = [dict(each) for each in ROWS]
    changed[row] |= change
    assert hash_of(changed) != hash_of(ROWS)

"""The schema of JSON bodies: the same in any order of parts, and what it says of a body is what a reader does with it."""

import json

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from pipeline.archive.body_schema import add_body, chosen_kind, described, merged, schema_of_bodies
from pipeline.archive.json_bodies import _outermost
from pipeline.source.bodies import with_bodies

NAMES = st.sampled_from(["a", "b", "c.d", ""])
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | st.floats(-1e6, 1e6) | st.text(max_size=4)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
BODIES = st.dictionaries(NAMES, VALUES, max_size=4).map(lambda each: json.dumps(each).encode())


def node_of(bodies, first_ms=0):
    node = {}
    for at, body in enumerate(bodies):
        assert add_body(node, body, first_ms + at)
    return node


@given(st.lists(BODIES, max_size=6), st.lists(BODIES, max_size=6))
def test_parts_are_merged_in_any_order_to_the_schema_of_the_whole(one, other):
    whole = node_of([*one, *other])
    parts = [node_of(one), node_of(other, len(one))]
    assert merged(parts) == merged(reversed(parts)) == merged([whole]) == whole
    assert json.loads(json.dumps(whole)) == whole


def is_of_kinds(node, value):
    """Whether a value is of the chosen types only, in all that the schema has of it."""
    (kind,) = node_of([json.dumps({"v": value}).encode()])["fields"]["v"]["types"]
    chosen = chosen_kind(node)
    if kind == "null" or not chosen:
        return True
    if kind != chosen and (kind, chosen) != ("bigint", "double"):
        return False
    if kind == "struct":
        return all(is_of_kinds(node["fields"][name], each) for name, each in value.items())
    return kind != "array" or all(is_of_kinds(node["items"], each) for each in value)


@given(st.lists(BODIES, min_size=1, max_size=6))
@example([b'{"a": null, "b": null, "": {}}', b'{"": []}', b'{"a": null, "b": null, "": {"a": null}}'])
def test_a_body_of_the_chosen_types_fits_the_schema(bodies):
    node = node_of(bodies)
    if (schema := schema_of_bodies(node)) is None:
        return
    batch = pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], names=["body"])
    made = with_bodies(batch, "json", to_arrow_type(schema, timezone="UTC"), ("body", "malformed"))
    for body, malformed in zip(bodies, made.column("malformed").to_pylist(), strict=True):
        if is_of_kinds(node, json.loads(body)):
            assert malformed is None


def test_fields_are_told_with_type_times_and_conflicts_and_a_new_one_comes_last():
    node = node_of(
        [b'{"z": 1, "list": [{"sku": "a"}]}', b'{"z": 2.5}', b'{"z": "x", "a": null}', b'{"z": 3, "a": true}']
    )
    assert [(row["field"], row["type"], row["count"], row["first_ms"], row["last_ms"], row["conflicts"]) for row in described(node)] == [
        ("list", "array", 1, 0, 0, {}),
        ("list[]", "struct", 1, 0, 0, {}),
        ("list[].sku", "string", 1, 0, 0, {}),
        ("z", "double", 4, 0, 3, {"string": 1}),
        ("a", "boolean", 2, 2, 3, {}),
    ]  # fmt: skip
    assert schema_of_bodies(node).simpleString() == "struct<list:array<struct<sku:string>>,z:double,a:boolean>"


def test_what_is_no_json_object_is_counted_apart_and_depth_is_bounded():
    node = {}
    assert [
        add_body(node, body, 0) for body in (None, b"", b"[1]", b"NaN", b'{"a": NaN}', b"\xff", b"[" * 100_000)
    ] == [False] * 7
    assert node == {}
    assert add_body(node, b'{"a":' * 50 + b"1" + b"}" * 50, 0)
    assert len(described(node)) == 8


def test_parts_of_ranges_that_were_joined_are_left_out():
    names = [
        f"_schema/t/{queue}-{start:020}-{end:020}.json"
        for queue, start, end in ((0, 0, 9), (0, 9, 20), (0, 0, 20), (1, 0, 5))
    ]
    assert _outermost(names) == [names[2], names[3]]

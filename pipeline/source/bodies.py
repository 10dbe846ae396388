"""Bodies decoded as text or JSON. A body that cannot be decoded becomes null, and its bytes go to column `malformed`."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pipeline.options import MALFORMED

BLOCK_BYTES_MIN = 1 << 20


def with_bodies(batch: pa.RecordBatch, body: str, kind: pa.DataType | None, columns: tuple[str, ...]) -> pa.RecordBatch:
    """The batch with decoded bodies, and with the columns in this order.

    Args:
        batch: has column `body` of type binary.
        body: `string` or `json`.
        kind: type of a decoded body.
    """
    raw = batch.column("body")
    decoded = _texts(raw) if body == "string" else _structs(raw, kind)
    bad = pc.and_(decoded.is_null(), raw.is_valid())
    made = {"body": decoded, MALFORMED: pc.if_else(bad, raw, pa.scalar(None, pa.binary()))}
    arrays = [made[name] if name in made else batch.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _texts(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(each.as_py()) for each in raw], pa.string())


def _text(body: bytes | None) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None


def _structs(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    """All bodies in one call of Arrow's reader of JSON lines, as long as each is one line with one value of the schema."""
    lines = pc.replace_substring(pc.replace_substring(raw, b"\n", b" "), b"\r", b" ")
    has_all = raw.null_count == 0 and pc.min(pc.binary_length(lines)).as_py() not in (None, 0)
    if has_all and not pc.any(pc.match_substring_regex(lines, r"^\s*$")).as_py():
        data = b"\n".join(lines.to_pylist())
        try:
            return _parsed(data, kind, len(raw))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    return pa.array([_struct(each.as_py(), kind) for each in raw], kind)


def _parsed(data: bytes, kind: pa.DataType, count: int) -> pa.Array:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    options = pa.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
    blocks = pa.json.ReadOptions(block_size=max(BLOCK_BYTES_MIN, len(data) + 1), use_threads=False)
    table = pa.json.read_json(pa.BufferReader(data), read_options=blocks, parse_options=options)
    if len(table) != count:
        raise pa.ArrowInvalid("a body is not one value")
    return pa.StructArray.from_arrays([_whole(table.column(each.name)) for each in fields], fields=fields)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _has_shape(value: Any, kind: pa.DataType) -> bool:
    """Whether objects and lists are where the type has them: Arrow takes a list for the pairs of an object."""
    if value is None:
        return True
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return isinstance(value, dict) and all(_has_shape(value.get(each.name), each.type) for each in fields)
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(_has_shape(each, kind.value_type) for each in value)
    return True


def _struct(body: bytes | None, kind: pa.DataType) -> Any:
    """One body as a value of the struct type; None when it is no JSON object or does not fit."""
    if body is None:
        return None
    try:
        value = json.loads(body)
        if value is None or not _has_shape(value, kind):
            return None
        pa.array([value], kind)
        return {name: value.get(name) for name in (kind.field(index).name for index in range(kind.num_fields))}
    except (ValueError, TypeError, RecursionError, pa.ArrowException):
        return None

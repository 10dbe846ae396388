"""The schema of JSON bodies: which fields there are, of which types, and when each was first and last seen. Pure.

A node is a dict that JSON can hold: `types`, per type [count, first and last time of storing in ms]; `fields` of objects,
by name; `items` of lists. Nodes of parts are merged in any order to the node of the whole.
"""

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

DEPTH_MAX = 8
FIELDS_MAX = 500
"""Fields of one object. Deeper values and further fields are in no schema; a reader ignores them."""
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
KINDS = ("boolean", "bigint", "double", "string", "array", "struct")
SCALARS: dict[str, DataType] = {
    "boolean": BooleanType(), "bigint": LongType(), "double": DoubleType(), "string": StringType(),
}  # fmt: skip

Node = dict[str, Any]


def add_body(node: Node, body: bytes | None, stored_ms: int) -> bool:
    """Add a body to the node of a topic. False: it is no JSON object."""
    try:
        value = json.loads(body or b"", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    _add(node, value, stored_ms, 0)
    return True


def merged(nodes: Iterable[Node]) -> Node:
    """The node of all values of these nodes."""
    whole: Node = {}
    for each in nodes:
        _merge(whole, each)
    return whole


def schema_of_bodies(node: Node) -> StructType | None:
    """The type into which most bodies fit; None without a field."""
    found = _type(node)
    return found if isinstance(found, StructType) else None


def chosen_kind(node: Node) -> str:
    """Whole numbers fit into doubles; otherwise the most frequent type; empty where only null was seen."""
    kinds = {kind: count for kind, (count, *_) in node.get("types", {}).items() if kind != "null"}
    if "double" in kinds and "bigint" in kinds:
        kinds["double"] += kinds.pop("bigint")
    return max(KINDS, key=lambda kind: (kinds.get(kind, 0), -KINDS.index(kind))) if kinds else ""


def described(node: Node, path: str = "") -> list[dict[str, Any]]:
    """One row per field, in the order of the schema: path, type, count, first and last time, conflicting types."""
    rows = []
    for name, each in _ordered(node):
        here = f"{path}.{name}" if path else name
        while each.get("items") and chosen_kind(each) == "array":
            rows.append(_row(here, each))
            each, here = each["items"], f"{here}[]"
        rows += [_row(here, each), *described(each, here)]
    return rows


def _row(path: str, node: Node) -> dict[str, Any]:
    chosen, types = chosen_kind(node), node.get("types", {})
    fits = {chosen, "null", *(["bigint"] if chosen == "double" else [])}
    return {
        "field": path, "type": chosen or "null", "count": sum(count for count, *_ in types.values()),
        "first_ms": min(first for _, first, _ in types.values()), "last_ms": max(last for *_, last in types.values()),
        "conflicts": {kind: count for kind, (count, *_) in sorted(types.items()) if kind not in fits},
    }  # fmt: skip


def _add(node: Node, value: Any, stored_ms: int, depth: int) -> None:
    kind = _kind(value)
    _seen(node, kind, 1, stored_ms, stored_ms)
    if depth == DEPTH_MAX:
        return
    if kind == "struct":
        for name, each in value.items():
            fields = node.setdefault("fields", {})
            if name in fields or len(fields) < FIELDS_MAX:
                _add(fields.setdefault(name, {}), each, stored_ms, depth + 1)
    elif kind == "array" and value:
        items = node.setdefault("items", {})
        for each in value:
            _add(items, each, stored_ms, depth + 1)


def _merge(node: Node, other: Node) -> None:
    for kind, (count, first, last) in other.get("types", {}).items():
        _seen(node, kind, count, first, last)
    for name, each in other.get("fields", {}).items():
        fields = node.setdefault("fields", {})
        if name in fields or len(fields) < FIELDS_MAX:
            _merge(fields.setdefault(name, {}), each)
    if "items" in other:
        _merge(node.setdefault("items", {}), other["items"])


def _seen(node: Node, kind: str, count: int, first: int, last: int) -> None:
    types = node.setdefault("types", {})
    before = types.get(kind, [0, first, last])
    types[kind] = [before[0] + count, min(before[1], first), max(before[2], last)]


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if LONG_MIN <= value <= LONG_MAX else "double"
    return {float: "double", str: "string", list: "array"}.get(type(value), "struct")


def _ordered(node: Node) -> list[tuple[str, Node]]:
    """Fields by the time at which they were first seen, so that a new one comes last."""
    if chosen_kind(node) != "struct":
        return []
    fields = node.get("fields", {}).items()
    return sorted(fields, key=lambda each: (min(first for _, first, _ in each[1]["types"].values()), each[0]))


def _type(node: Node) -> DataType | None:
    """The type of a node; None where nothing can be read into one."""
    kind = chosen_kind(node)
    if kind == "struct":
        fields = [(name, _type(each)) for name, each in _ordered(node)]
        found = [StructField(name, each) for name, each in fields if each is not None]
        return StructType(found) if found else None
    if kind == "array":
        items = _type(node["items"]) if "items" in node else StringType()
        return None if items is None else ArrayType(items)
    return SCALARS[kind] if kind else StringType()


def _refuse(text: str) -> None:
    raise ValueError(text)

"""The shape of a body, and the class of a reason: texts that are equal for messages of one kind. Pure."""

import json
import re
from typing import Any

DEPTH_MAX, KEYS_MAX, ELEMENTS_MAX, SHAPE_CHARS_MAX = 6, 40, 20, 600
"""What lies deeper, or beside so many, is shown as an ellipsis: bodies cannot make a shape of any size."""
REASON_CHARS_MAX = 300
PLACEHOLDER = "#"
_VARIABLE = re.compile(
    r"""
    [0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}   # UUID
    | \b(?=\w*[0-9])\w{6,}\b                                                      # id or digest
    | [0-9]+(?:[.,:-][0-9]+)*                                                     # number, time, date, address
    """,
    re.VERBOSE,
)
_NAMES = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}


def shape_of(body: bytes | bytearray | None) -> str:
    """The structure of a JSON body, such as `{amount: number, items: [{sku: string}]}`; else empty, text or binary."""
    if not body:
        return "empty"
    try:
        return _cut(_shape(json.loads(bytes(body)), 1), SHAPE_CHARS_MAX)
    except RecursionError:
        return "nested too deep"
    except ValueError:
        pass
    try:
        bytes(body).decode()
    except UnicodeDecodeError:
        return "binary"
    return "text"


def reason_class(reason: str | None) -> str:
    """The reason with a placeholder for each number, id, time and address."""
    return _cut(_VARIABLE.sub(PLACEHOLDER, " ".join((reason or "").split())), REASON_CHARS_MAX)


def literal_of(reason: str) -> str:
    """The longest part of a class's reason that its messages have in common as it is; empty: there is none."""
    return max((part.strip(" …") for part in reason.split(PLACEHOLDER)), key=len)


def _shape(value: Any, depth: int) -> str:
    if isinstance(value, dict | list) and depth > DEPTH_MAX:
        return "…"
    if isinstance(value, dict):
        found: dict[str, set[str]] = {}
        for name, each in value.items():
            found.setdefault(_VARIABLE.sub(PLACEHOLDER, name), set()).add(_shape(each, depth + 1))
        parts = [f"{name}: {' | '.join(sorted(kinds))}" for name, kinds in sorted(found.items())]
        return "{" + ", ".join(parts[:KEYS_MAX] + (["…"] if len(parts) > KEYS_MAX else [])) + "}"
    if isinstance(value, list):
        kinds = sorted({_shape(each, depth + 1) for each in value[:ELEMENTS_MAX]})
        return "[" + " | ".join(kinds) + "]"
    return _NAMES[type(value)]


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"

"""The `traceparent` property of a message: the W3C's text form of a span, which a producer has put there."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from common.wire.cursor import Cursor
from common.wire.faults import WireError

TRACEPARENT = "traceparent"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]([0-9a-f])(?:-.*)?", re.ASCII)
_STORED = re.compile(
    b"\x00\x00\x00\x0btraceparent\x00\x00\x00\x37[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]"
)
_PROPERTIES, _MAP = 5, 13


class SpanParent(NamedTuple):
    """A sampled span: its trace and itself."""

    trace_id: int
    span_id: int


def sampled_parent(properties: Mapping[str, str] | None) -> SpanParent | None:
    """The sampled span that the properties name; None: none, one that is not sampled, or another text."""
    found = _FORM.fullmatch((properties or {}).get(TRACEPARENT) or "")
    if found is None or not int(found[3], 16) & 1:
        return None
    parent = SpanParent(int(found[1], 16), int(found[2], 16))
    return parent if all(parent) else None


def may_have_sampled(encoded: bytes) -> bool:
    """Whether encoded messages may have a sampled parent of version 00, which has 55 characters: other bytes may look so."""
    return _STORED.search(encoded) is not None


def parent_of(message: bytes) -> SpanParent | None:
    """The sampled span that an encoded message names. None, too, when the bytes are no message."""
    if not may_have_sampled(message):
        return None
    cursor = Cursor(message)
    try:
        while True:
            kind, field = cursor.field()
            if not kind:
                return None
            if (kind, field) == (_MAP, _PROPERTIES):
                return sampled_parent(_texts(cursor))
            cursor.skip(kind, 1)
    except WireError:
        return None


def _texts(cursor: Cursor) -> dict[str, str]:
    _, _, count = cursor.map()
    found = [cursor.slice(*cursor.string()).decode(errors="replace") for _ in range(2 * count)]
    return dict(zip(found[::2], found[1::2], strict=True))

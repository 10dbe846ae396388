"""Filters of a query, pushed down: ranges of offsets, times and messages that cannot have a matching row. Pure.

Spark applies all filters again, so a filter that is not understood is left to it. None may leave out a matching row.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from common.filter.errors import FilterError
from common.filter.expression import read_filter
from pipeline.proxy.topics import TopicQueue
from pipeline.reply.row_filter import TIME_MAX_MS, RowFilter
from pipeline.source.ranges import OffsetRange

AFTER_ALL = 1 << 63
LOOK_UP_MAX_MS = 253_402_300_799_999  # the last one of year 9999
CLOCK_STEP_MS = 3_600_000
"""Offsets of a time are looked up this much before and after the time that a filter names. The look-up halves a queue,
so where a clock was set back it may miss by the step; within this margin no matching row is left out."""

FIELDS = {("tag",): "TAGS", ("key",): "KEYS"}
SEARCHES: dict[type, str] = {StringStartsWith: "STARTSWITH", StringEndsWith: "ENDSWITH", StringContains: "CONTAINS"}
COMPARISONS = EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def pruned(ranges: Iterable[OffsetRange], filters: Sequence[Filter]) -> list[OffsetRange]:
    """The parts of ranges that may have rows for which all filters on topic, queue and offset hold."""
    kept = []
    for each in ranges:
        start, end = each.start, each.end
        for one in filters:
            low, high = _offsets(one, each)
            start, end = max(start, low), min(end, high)
        if start < end:
            kept.append(OffsetRange(each.topic, each.queue, start, end))
    return kept


def row_filter(filters: Sequence[Filter], text: str = "") -> RowFilter:
    """What filters on time, tag and key ask of each message, beside a text in the engine's language."""
    texts = [text] if text else []
    from_ms, to_ms = 0, TIME_MAX_MS
    for one in filters:
        low, high = _times(one)
        from_ms, to_ms = max(from_ms, low), min(to_ms, high)
        if found := _text(one):
            texts.append(found)
    return RowFilter(tuple(texts), from_ms, to_ms)


def has_times(rows: RowFilter) -> bool:
    return rows.from_ms > 0 or rows.to_ms < TIME_MAX_MS


def times_around(rows: RowFilter) -> tuple[int, int]:
    """The times whose offsets bound what a row filter may hold for, in milliseconds."""
    return max(0, rows.from_ms - CLOCK_STEP_MS), min(LOOK_UP_MAX_MS, rows.to_ms + CLOCK_STEP_MS)


def within_times(
    ranges: Iterable[OffsetRange], since: Mapping[TopicQueue, int], until: Mapping[TopicQueue, int]
) -> list[OffsetRange]:
    """The parts of ranges between the offsets of two times; a queue that one of them lacks is not cut there."""
    kept = []
    for each in ranges:
        queue = TopicQueue(each.topic, each.queue)
        start, end = max(each.start, since.get(queue, 0)), min(each.end, until.get(queue, AFTER_ALL))
        if start < end:
            kept.append(OffsetRange(each.topic, each.queue, start, end))
    return kept


def _offsets(one: Filter, part: OffsetRange) -> tuple[int, int]:
    """The offsets of the range's queue for which a filter may hold; (0, 0) for none."""
    if not isinstance(one, COMPARISONS):
        return 0, AFTER_ALL
    if one.attribute in (("topic",), ("queue",)):
        return (0, AFTER_ALL) if _may_be(one, getattr(part, one.attribute[0])) else (0, 0)
    return _bounds(one, one.value) if one.attribute == ("offset",) else (0, AFTER_ALL)


def _may_be(one: Filter, value: str | int) -> bool:
    if isinstance(one, EqualTo):
        return bool(value == one.value)
    return value in one.value if isinstance(one, In) else True


def _times(one: Filter) -> tuple[int, int]:
    """The times in milliseconds, the second one exclusive, for which a filter may hold."""
    if not isinstance(one, COMPARISONS) or one.attribute != ("stored_at",):
        return 0, TIME_MAX_MS
    given = one.value if isinstance(one, In) else (one.value,)
    if any(each is not None and not (isinstance(each, datetime) and each.tzinfo) for each in given):
        return 0, TIME_MAX_MS
    found = [(each - EPOCH) // MICROSECOND for each in given if each is not None]
    if isinstance(one, EqualTo | In):
        found = [each for each in found if each % 1000 == 0]  # no other is a stored time
    if not found:
        return 0, 0
    rounded_down, rounded_up = min(found) // 1000, -(-max(found) // 1000)
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return (rounded_down + 1 if isinstance(one, GreaterThan) else rounded_up), TIME_MAX_MS
    if isinstance(one, LessThan):
        return 0, rounded_up
    return (0 if isinstance(one, LessThanOrEqual) else rounded_down), max(found) // 1000 + 1


def _text(one: Filter) -> str:
    """A filter on tag or key in the engine's language; empty where it has no equal there."""
    if isinstance(one, Not):
        return f"NOT ({inner})" if (inner := _text(one.child)) else ""
    field = FIELDS.get(getattr(one, "attribute", ("",)))
    if field is None:
        return ""
    if isinstance(one, IsNull | IsNotNull):
        return f"{field} IS NULL" if isinstance(one, IsNull) else f"{field} IS NOT NULL"
    if isinstance(one, EqualTo | In):
        values = one.value if isinstance(one, In) else (one.value,)
        return _readable(f"{field} IN ({', '.join(map(_quoted, values))})") if values and None not in values else ""
    if not isinstance(one, StringStartsWith | StringEndsWith | StringContains) or one.value is None:
        return ""
    return _readable(f"{field} {SEARCHES[type(one)]} {_quoted(one.value)}")


def _readable(text: str) -> str:
    """The text, or none where it is longer than a filter may be."""
    try:
        read_filter(text)
    except FilterError:
        return ""
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _bounds(one: Any, value: Any) -> tuple[int, int]:
    """The whole numbers for which a comparison may hold."""
    if isinstance(one, In):
        found = [each for each in value if each is not None]
        return (min(found), max(found) + 1) if found else (0, 0)
    if value is None:
        return 0, 0
    if isinstance(one, EqualTo):
        return value, value + 1
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return value + isinstance(one, GreaterThan), AFTER_ALL
    return 0, value + isinstance(one, LessThanOrEqual)

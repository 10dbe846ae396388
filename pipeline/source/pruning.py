"""Filters of a query that name offsets, queues and topics: ranges that cannot have a matching row are not read. Pure."""

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from pipeline.source.ranges import OffsetRange

AFTER_ALL = 1 << 63


def pruned(ranges: Iterable[OffsetRange], filters: Sequence[Filter]) -> list[OffsetRange]:
    """The parts of ranges that may have rows for which all filters hold. Spark applies the filters to them again."""
    kept = []
    for each in ranges:
        start, end = each.start, each.end
        for one in filters:
            low, high = _offsets(one, each)
            start, end = max(start, low), min(end, high)
        if start < end:
            kept.append(OffsetRange(each.topic, each.queue, start, end))
    return kept


def _offsets(one: Filter, part: OffsetRange) -> tuple[int, int]:
    """The offsets of the range's queue for which a filter may hold; (0, 0) for none."""
    if not isinstance(one, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return 0, AFTER_ALL
    if one.attribute in (("topic",), ("queue",)):
        return (0, AFTER_ALL) if _may_be(one, getattr(part, one.attribute[0])) else (0, 0)
    if one.attribute != ("offset",):
        return 0, AFTER_ALL
    return _bounds(one)


def _may_be(one: Filter, value: str | int) -> bool:
    if isinstance(one, EqualTo):
        return bool(value == one.value)
    return value in one.value if isinstance(one, In) else True


def _bounds(one: Filter) -> tuple[int, int]:
    """The offsets for which a comparison of the offset may hold."""
    if isinstance(one, In):
        found = [each for each in one.value if each is not None]
        return (min(found), max(found) + 1) if found else (0, 0)
    value = one.value  # type: ignore[attr-defined]
    if value is None:
        return 0, 0
    if isinstance(one, EqualTo):
        return value, value + 1
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return value + isinstance(one, GreaterThan), AFTER_ALL
    return 0, value + isinstance(one, LessThanOrEqual)

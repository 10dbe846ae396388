"""The offsets that a comparison judges, per queue: chosen once at its beginning, so both sides may grow meanwhile. Pure."""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.archive.manifest import RangeEntry
from pipeline.errors import NothingToCompare
from pipeline.proxy.topics import QueueBounds


class QueueSpan(NamedTuple):
    """Offsets of one queue, from `first` to before `end`."""

    first: int
    end: int


QueueSpans = dict[int, QueueSpan]


def is_within(spans: Mapping[int, QueueSpan]) -> Column:
    """Whether a row with columns `queue` and `offset` is in the spans. A queue without a span is not."""
    found = [
        (F.col("queue") == queue) & (F.col("offset") >= F.lit(span.first)) & (F.col("offset") < F.lit(span.end))
        for queue, span in spans.items()
    ]
    while len(found) > 1:  # in pairs: Spark walks expressions recursively, and a topic may have 10,000 queues
        found = [reduce(or_, found[at : at + 2]) for at in range(0, len(found), 2)]
    return found[0] if found else F.lit(False)


def archived_spans(entries: Iterable[RangeEntry]) -> QueueSpans:
    """Per queue, from the first offset that was not pruned to the end of the last range.

    Gaps within are part of it: a message that the engine has there is missing in the archive.
    """
    spans: QueueSpans = {}
    for each in entries:
        first = each.end if each.pruned_ms else each.start
        spans[each.queue] = QueueSpan(spans[each.queue].first if each.queue in spans else first, each.end)
        if each.pruned_ms:
            spans[each.queue] = QueueSpan(each.end, each.end)
    return {queue: span for queue, span in spans.items() if span.first < span.end}


def common_spans(
    asked: Mapping[int, QueueSpan], archived: Mapping[int, QueueSpan], stored: Mapping[int, QueueBounds]
) -> tuple[QueueSpans, list[str]]:
    """The spans that both the archive and the engine have, of those asked for, and sentences on what is left out.

    Raises:
        NothingToCompare
    """
    spans, notes = {}, []
    for queue, span in sorted(asked.items()):
        own = archived.get(queue, QueueSpan(0, 0))
        first, end = max(span.first, own.first, stored[queue].first), min(span.end, own.end)
        if first < end:
            spans[queue] = QueueSpan(first, end)
        if (gone := min(stored[queue].first, own.end)) > own.first:
            notes.append(f"queue {queue}: offsets {own.first} to {gone} are no longer in the engine: not compared")
        if span.end > max(own.end, span.first):
            notes.append(
                f"queue {queue}: offsets {max(own.end, span.first)} to {span.end} are not archived: not compared"
            )
    if not spans:
        raise NothingToCompare("; ".join(["no offset is in both the archive and the engine", *notes[:3]]))
    return spans, notes

"""A report's minutes as the console's history takes them: chunks of 6 hours of one topic. Pure but for reading rows."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

MINUTE_S, CHUNK_S = 60, 21_600
MINUTES = CHUNK_S // MINUTE_S
KEPT_S = 30 * 86_400
"""Of the console's history."""
FIGURES = ("stored", "stored_bytes", "sent_p50", "sent_p99")
Values = list[float | None]


class MinuteRow(NamedTuple):
    """One minute of a topic."""

    topic: str
    minute_s: int
    messages: int
    size_bytes: int
    p50_ms: int | None
    p99_ms: int | None


class ReportedChunk(NamedTuple):
    """`figures`: MINUTES values of each of FIGURES: rates per second and seconds; None: the report has no such minute."""

    topic: str
    begin_s: int
    figures: dict[str, Values]


def reported_chunks(rows: Iterable[MinuteRow]) -> list[ReportedChunk]:
    """Between a topic's first and last minute, one without a message counts as 0."""
    by_topic: dict[str, list[MinuteRow]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    chunks = []
    for topic, own in sorted(by_topic.items()):
        own.sort(key=lambda row: row.minute_s)
        known = {row.minute_s: row for row in own}
        first, last = own[0].minute_s, own[-1].minute_s
        for begin_s in range(first - first % CHUNK_S, last + 1, CHUNK_S):
            minutes = range(begin_s, begin_s + CHUNK_S, MINUTE_S)
            values = [_values(known.get(at_s)) if first <= at_s <= last else (None,) * 4 for at_s in minutes]
            chunks.append(
                ReportedChunk(topic, begin_s, {name: [row[at] for row in values] for at, name in enumerate(FIGURES)})
            )
    return chunks


def _values(row: MinuteRow | None) -> Sequence[float | None]:
    if row is None:
        return (0.0, 0.0, None, None)
    times: list[Any] = [None if value is None else max(0, value) / 1000 for value in (row.p50_ms, row.p99_ms)]
    return (row.messages / MINUTE_S, row.size_bytes / MINUTE_S, *times)

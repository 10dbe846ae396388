"""Findings of a drill-down: ids that are missing, doubled or altered on a side, from the rows of both. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from migration.reconcile.row_sets import ENGINE, KAFKA
from migration.reconcile.rows import OFFSET_MAX, REPAIRED, ROW, ROW_SIZE

OFFSETS_SHOWN_MAX = 20


class DiscrepancyKind(StrEnum):
    """
    Attributes:
        SUPERSEDED: an altered message that an operator has had written again; it is no divergence.
    """

    MISSING_IN_ENGINE = "missing in the engine"
    MISSING_IN_KAFKA = "missing in Kafka"
    DOUBLED_IN_ENGINE = "doubled in the engine"
    DOUBLED_IN_KAFKA = "doubled in Kafka"
    ALTERED = "altered"
    SUPERSEDED = "superseded"


MISSING = (DiscrepancyKind.MISSING_IN_ENGINE, DiscrepancyKind.MISSING_IN_KAFKA)


@dataclass(frozen=True)
class Discrepancy:
    """
    Attributes:
        id_hash: of the comparison that found it.
        kafka_offsets, engine_offsets: of the messages with this id, the first OFFSETS_SHOWN_MAX of each side.
        kafka_count, engine_count: how many there are.
        id: as clients see it; empty: not read yet.
    """

    kind: DiscrepancyKind
    queue: int
    id_hash: int
    kafka_offsets: tuple[int, ...]
    engine_offsets: tuple[int, ...]
    kafka_count: int
    engine_count: int
    id: str = ""


class _SideRow(NamedTuple):
    content: int
    offset: int
    is_repair: bool


def findings(queue: int, differing: bytes) -> Iterator[Discrepancy]:
    """A finding per id of the rows that `row_sets.differing` gives."""
    rows = (ROW.unpack_from(differing, at) for at in range(0, len(differing), ROW_SIZE))
    for shown, group in groupby(rows, key=lambda row: row[0]):
        sides: tuple[list[_SideRow], list[_SideRow]] = ([], [])
        for _, content, offset, _, side in group:
            sides[side].append(_SideRow(content, offset & OFFSET_MAX, bool(offset & REPAIRED)))
        kafka, engine = sides[KAFKA], sides[ENGINE]
        yield finding(kind_of(kafka, engine), queue, shown, kafka, engine)


def finding(
    kind: DiscrepancyKind, queue: int, shown: int, kafka: Sequence[_SideRow], engine: Sequence[_SideRow],
    counts: tuple[int, int] | None = None,
) -> Discrepancy:  # fmt: skip
    """A finding with the first offsets of each side. `counts`: of all rows, where these are only some of them."""
    kafka_count, engine_count = counts or (len(kafka), len(engine))
    return Discrepancy(kind, queue, shown, _offsets(kafka), _offsets(engine), kafka_count, engine_count)


def _offsets(side: Sequence[_SideRow]) -> tuple[int, ...]:
    return tuple(sorted(row.offset for row in side))[:OFFSETS_SHOWN_MAX]


def kind_of(kafka: Sequence[_SideRow], engine: Sequence[_SideRow]) -> DiscrepancyKind:
    """The kind of an id whose contents are not the same on both sides."""
    if not engine:
        return DiscrepancyKind.MISSING_IN_ENGINE
    if not kafka:
        return DiscrepancyKind.MISSING_IN_KAFKA
    contents = [{row.content for row in side} for side in (kafka, engine)]
    if contents[KAFKA] == contents[ENGINE]:
        is_more = len(engine) >= len(kafka)
        return DiscrepancyKind.DOUBLED_IN_ENGINE if is_more else DiscrepancyKind.DOUBLED_IN_KAFKA
    for side, other in ((engine, contents[KAFKA]), (kafka, contents[ENGINE])):
        newest = max(side, key=lambda row: row.offset)
        if newest.is_repair and newest.content in other:
            return DiscrepancyKind.SUPERSEDED
    return DiscrepancyKind.ALTERED


def crowd(queue: int, shown: int, sides: tuple[Iterable[bytes], Iterable[bytes]]) -> Discrepancy | None:
    """The finding of a single id with more rows than fit into memory, by counts and XOR of contents; None: equal."""
    firsts: tuple[list[_SideRow], list[_SideRow]] = ([], [])
    counts, sums = [0, 0], [0, 0]
    for side in (KAFKA, ENGINE):
        for chunk in sides[side]:
            for _, content, offset, _, _ in ROW.iter_unpack(chunk):
                counts[side] += 1
                sums[side] ^= content
                if len(firsts[side]) < OFFSETS_SHOWN_MAX:
                    firsts[side].append(_SideRow(content, offset & OFFSET_MAX, bool(offset & REPAIRED)))
    if counts[KAFKA] == counts[ENGINE] and sums[KAFKA] == sums[ENGINE]:
        return None
    if not counts[ENGINE] or not counts[KAFKA]:
        kind = DiscrepancyKind.MISSING_IN_KAFKA if counts[ENGINE] else DiscrepancyKind.MISSING_IN_ENGINE
    elif counts[KAFKA] == counts[ENGINE]:
        kind = DiscrepancyKind.ALTERED
    else:
        kind = DiscrepancyKind.DOUBLED_IN_ENGINE if counts[ENGINE] > counts[KAFKA] else DiscrepancyKind.DOUBLED_IN_KAFKA
    return finding(kind, queue, shown, *firsts, counts=(counts[KAFKA], counts[ENGINE]))

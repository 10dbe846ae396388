"""The comparison of one topic: windows of both sides first, then the ids of the windows that differ.

Reads Kafka, then the engine, each from the beginning of the bounds to their end. Memory: one window of 48 bytes per queue,
side and minute, one fetch, and RUN_BYTES for the drill-down. Nothing is written on either side.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from common.kafka.base import PartitionReader
from common.kafka.records import Partition, Records
from migration.positions import EnginePositions
from migration.reconcile.bounds import TopicBounds
from migration.reconcile.engine_side import pieces
from migration.reconcile.findings import Discrepancy, DiscrepancyKind, crowd, findings
from migration.reconcile.kafka_side import fetches
from migration.reconcile.native import chosen, differing, fold, holding, rows_of_records, rows_of_stored
from migration.reconcile.row_sets import ENGINE, KAFKA, WINDOW
from migration.reconcile.rows import ROW, ROW_SIZE, HashKey
from migration.reconcile.runs import RUN_BYTES, RowRuns, slices
from migration.reconcile.spans import ReadRange, merged

FINDINGS_MAX = 10_000
"""Findings that are listed; the others are counted."""
GAP = 10_000
"""Offsets between two ranges of a drill-down that are read as well, in place of a new start behind them."""
TELL_S = 2.0
COPY_PAUSES_S = (0.2, 0.5, 1.0, 2.0)
"""Pauses of a comparison, after each of which messages missing on one side of a dual write are looked for again."""
ON_THEIR_WAY_MAX = 100
"""Findings of a queue that may be such copies; more are not."""
MISSING = {DiscrepancyKind.MISSING_IN_KAFKA, DiscrepancyKind.MISSING_IN_ENGINE}
Windows = dict[int, bytearray]


@dataclass
class Compared:
    """The result of one topic.

    Attributes:
        kafka, engine: messages that were compared; and their bytes of body.
        windows, differing: number of queues and minutes, and of those that differ.
        findings: at most FINDINGS_MAX; `counts`: all, by kind.
        rows: in the drill-down, of both sides.
    """

    topic: str
    kafka: int = 0
    engine: int = 0
    kafka_bytes: int = 0
    engine_bytes: int = 0
    windows: int = 0
    differing: int = 0
    rows: int = 0
    findings: list[Discrepancy] = field(default_factory=list)
    counts: Counter[DiscrepancyKind] = field(default_factory=Counter)

    def add(self, finding: Discrepancy) -> None:
        self.counts[finding.kind] += 1
        self.findings.append(finding)

    def bounded(self, found: Iterable[Discrepancy]) -> list[Discrepancy]:
        """The first ones; the others are counted at once."""
        kept: list[Discrepancy] = []
        for each in found:
            if len(self.findings) + len(kept) < FINDINGS_MAX:
                kept.append(each)
            else:
                self.counts[each.kind] += 1
        return kept


class TopicComparison:
    """
    Args:
        open_reader: opens a reader of committed records, for one pass.
        progress: called with a sentence every two seconds.
        widened: asked for bounds with all of a queue, before an id counts as missing; None: the bounds are exact.
        folder: for temporary files; None: the system's.
    """

    def __init__(
        self, bounds: TopicBounds, engine: EnginePositions, open_reader: Callable[[], PartitionReader],
        progress: Callable[[str], object] = lambda sentence: None, folder: Path | None = None,
        run_bytes: int = RUN_BYTES, widened: Callable[[TopicBounds, int], TopicBounds] | None = None,
    ) -> None:  # fmt: skip
        self._bounds, self._engine, self._open_reader = bounds, engine, open_reader
        self._progress, self._folder, self._run_bytes = progress, folder, run_bytes
        self._pauses = iter(COPY_PAUSES_S if widened is not None else ())  # once per comparison, not per queue
        self._widened = widened or (lambda bounds, queue: bounds)
        self._key: HashKey = (int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8)))
        self._told_s = time.monotonic()
        self._taken: dict[int, Windows] | None = None

    @property
    def kafka_ranges(self) -> dict[Partition, ReadRange]:
        """What has to be read of Kafka for the windows."""
        return {Partition(self._bounds.topic.name, queue): each for queue, each in self._bounds.kafka.items()}

    def begin(self) -> None:
        """All of `kafka_ranges` is given by `take` from now on, so `run` does not read it."""
        self._taken = {queue: {} for queue in self._bounds.scopes}

    def take(self, records: Records) -> None:
        """Take records of Kafka that were read for several topics."""
        queue = records.partition.number
        assert self._taken is not None
        fold(rows_of_records(records, self._bounds.scopes[queue], self._key), self._taken[queue])

    def run(self) -> Compared:
        """Compare. Blocks; raises KafkaFault, AdminError, OSError, PayloadError."""
        result, self._told_s = Compared(self._bounds.topic.name), time.monotonic()
        sides = (self._windows(KAFKA) if self._taken is None else self._taken, self._windows(ENGINE))
        result.kafka, result.kafka_bytes = _totals(sides[KAFKA])
        result.engine, result.engine_bytes = _totals(sides[ENGINE])
        for queue in self._bounds.scopes:
            minutes = differing_minutes(sides[KAFKA][queue], sides[ENGINE][queue])
            result.windows += len({*sides[KAFKA][queue], *sides[ENGINE][queue]})
            result.differing += len(minutes)
            if minutes:
                found = self._drill_down(queue, minutes, (sides[KAFKA][queue], sides[ENGINE][queue]), result)
                for each in self._settled(queue, self._looked_again(queue, found)):
                    result.add(each)
        return result

    def _windows(self, side: int) -> dict[int, Windows]:
        found: dict[int, Windows] = {queue: {} for queue in self._bounds.scopes}
        ranges = self._bounds.kafka if side == KAFKA else self._bounds.engine
        total, read = sum(max(0, each.end - each.first) for each in ranges.values()), 0
        for queue, rows in self._rows(side, ranges, self._bounds):
            fold(rows, found[queue])
            read += len(rows) // ROW_SIZE
            self._tell(f"{self._bounds.topic.name}: {_name(side)}: {read:,} messages of {total:,} offsets")
        return found

    def _rows(self, side: int, ranges: Mapping[int, ReadRange], bounds: TopicBounds) -> Iterator[tuple[int, bytes]]:
        return self._kafka_rows(ranges, bounds) if side == KAFKA else self._engine_rows(ranges, bounds)

    def _kafka_rows(self, ranges: Mapping[int, ReadRange], bounds: TopicBounds) -> Iterator[tuple[int, bytes]]:
        topic, scopes = bounds.topic.name, bounds.scopes
        with closing(self._open_reader()) as reader:
            for records in fetches(reader, {Partition(topic, queue): each for queue, each in ranges.items()}):
                queue = records.partition.number
                yield queue, rows_of_records(records, scopes[queue], self._key)

    def _engine_rows(self, ranges: Mapping[int, ReadRange], bounds: TopicBounds) -> Iterator[tuple[int, bytes]]:
        for home in self._engine.homes(bounds.topic):
            own = {queue: ranges[queue] for queue in home.queues if queue in ranges}
            for piece in pieces(home.link, bounds.stored, own) if own else ():
                scope = bounds.scopes[piece.queue]
                rows = rows_of_stored(
                    piece.records, piece.count, piece.first_offset, piece.stored_at_ms, scope, self._key
                )
                yield piece.queue, rows

    def _drill_down(
        self, queue: int, minutes: set[int], sides: tuple[Windows, Windows], result: Compared
    ) -> list[Discrepancy]:
        with ExitStack() as stack:
            runs = (self._runs(stack), self._runs(stack))
            for side in (KAFKA, ENGINE):
                ranges = merged([_range(sides[side][each]) for each in minutes if each in sides[side]], GAP)
                for each in ranges:
                    for _, rows in self._rows(side, {queue: each}, self._bounds):
                        runs[side].add(chosen(rows, minutes))
                        self._tell(f"{self._bounds.topic.name} queue {queue}: {_name(side)}: {runs[side].rows:,} ids")
                runs[side].finish()
                result.rows += runs[side].rows
            return result.bounded(found_in(queue, runs, self._run_bytes // 4))

    def _looked_again(self, queue: int, found: list[Discrepancy]) -> list[Discrepancy]:
        """The findings, after a search for what is missing among all messages of the queue.

        The times of two copies of an id may differ, and then only the window of one of them may differ.
        """
        elsewhere: set[int] = set()
        bounds = self._widened(self._bounds, queue) if found else self._bounds
        for kind, side in ((DiscrepancyKind.MISSING_IN_KAFKA, KAFKA), (DiscrepancyKind.MISSING_IN_ENGINE, ENGINE)):
            if missing := {each.id_hash for each in found if each.kind is kind}:
                searched = self._rows(side, _range_of(side, queue, bounds), bounds)
                rows = b"".join(holding(rows, missing) for _, rows in searched)
                elsewhere |= {shown for shown, *_ in ROW.iter_unpack(rows)}
        if not elsewhere:
            return found
        kept = [each for each in found if each.id_hash not in elsewhere]
        with ExitStack() as stack:
            runs = (self._runs(stack), self._runs(stack))
            for side in (KAFKA, ENGINE):
                for _, rows in self._rows(side, _range_of(side, queue, bounds), bounds):
                    runs[side].add(holding(rows, elsewhere))
                runs[side].finish()
            return [*kept, *found_in(queue, runs, self._run_bytes // 4)]

    def _settled(self, queue: int, found: list[Discrepancy]) -> list[Discrepancy]:
        """The findings that stand after a while: the copy of a message to the second side may have been on its way."""
        while len(found) <= ON_THEIR_WAY_MAX and any(each.kind in MISSING for each in found):
            if (pause_s := next(self._pauses, None)) is None:
                break
            time.sleep(pause_s)
            found = self._looked_again(queue, found)
        return found

    def _runs(self, stack: ExitStack) -> RowRuns:
        return stack.enter_context(closing(RowRuns(self._folder, self._run_bytes // 4)))

    def _tell(self, sentence: str) -> None:
        if (now := time.monotonic()) >= self._told_s + TELL_S:
            self._told_s = now
            self._progress(sentence)


def read_kafka(
    comparisons: Sequence[TopicComparison], open_reader: Callable[[], PartitionReader],
    progress: Callable[[str], object],
) -> None:  # fmt: skip
    """Read Kafka once for several topics, which have one request in common where each alone would wait for several.

    Blocks; raises KafkaFault.
    """
    by_partition = {each: one for one in comparisons for each in one.kafka_ranges}
    ranges = {partition: span for one in comparisons for partition, span in one.kafka_ranges.items()}
    total, read, told_s = sum(max(0, each.end - each.first) for each in ranges.values()), 0, time.monotonic()
    for each in comparisons:
        each.begin()
    with closing(open_reader()) as reader:
        for records in fetches(reader, ranges):
            by_partition[records.partition].take(records)
            read += len(records.offsets)
            if time.monotonic() >= told_s + TELL_S:
                told_s = time.monotonic()
                progress(f"{len(comparisons)} topics: Kafka: {read:,} messages of {total:,} offsets")


def found_in(queue: int, runs: tuple[RowRuns, RowRuns], bytes_max: int) -> Iterator[Discrepancy]:
    """The findings of both sides' rows, slice by slice of their ids."""
    for low, high, fits in slices(runs, bytes_max):
        if fits:
            yield from findings(queue, differing(runs[KAFKA].between(low, high), runs[ENGINE].between(low, high)))
            continue
        crowded = crowd(
            queue, low, (runs[KAFKA].chunks(low, high, bytes_max), runs[ENGINE].chunks(low, high, bytes_max))
        )
        if crowded is not None:
            yield crowded


def differing_minutes(kafka: Windows, engine: Windows) -> set[int]:
    """The minutes whose windows differ in count, bytes or a sum of hashes."""
    return {each for each in {*kafka, *engine} if _sums(kafka.get(each)) != _sums(engine.get(each))}


def _sums(window: bytearray | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if window is None else WINDOW.unpack(window)[:4]


def _range_of(side: int, queue: int, bounds: TopicBounds) -> dict[int, ReadRange]:
    return {queue: (bounds.kafka if side == KAFKA else bounds.engine)[queue]}


def _range(window: bytearray) -> ReadRange:
    *_, lowest, highest = WINDOW.unpack(window)
    return ReadRange(lowest, highest + 1)


def _totals(windows: Mapping[int, Windows]) -> tuple[int, int]:
    """Messages and bytes of all windows."""
    sums = [_sums(each) for own in windows.values() for each in own.values()]
    return sum(each[0] for each in sums), sum(each[1] for each in sums)


def _name(side: int) -> str:
    return "Kafka" if side == KAFKA else "engine"

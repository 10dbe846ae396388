"""The comparison of a plan's topics, their repair, and the result as it is kept in the configuration store."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from common.admin.administrator import Administrator
from common.config.definitions import CopyOutDefinition, TopicDefinition
from common.kafka.base import ClusterAdmin, KafkaProducer, PartitionReader
from kafka_bridge.copy_out.positions import CopiedPositions, position_group
from migration.errors import PlanRefused
from migration.plan import MigrationPlan
from migration.positions import EnginePositions
from migration.reconcile.bounds import BoundsFinder, TopicBounds
from migration.reconcile.comparison import Compared, TopicComparison, read_kafka
from migration.reconcile.copied_ends import wait_for_copies
from migration.reconcile.findings import DiscrepancyKind
from migration.reconcile.lookups import FindingReads
from migration.reconcile.repair import Repaired, TopicRepair
from migration.reconcile.spans import TimeSpan

KIND = "migration_check"
FINDINGS_KEPT_MAX = 100
PARTITIONS_AT_ONCE = 100
"""Whose records of Kafka are read together. More save requests, and cost memory; and their ends are older at the end."""
TOPICS_BYTES_MAX, FINDINGS_BYTES_MAX = 36 << 10, 24 << 10
"""As JSON, of the entry that keeps a result. Topics that differ are the first in it; the others are added up in one row."""
DIFFERENCES = tuple(kind.name.lower() for kind in DiscrepancyKind if kind is not DiscrepancyKind.SUPERSEDED)
"""Columns of `topic_row` that count ids which differ."""


class CheckedTopic(NamedTuple):
    """
    Attributes:
        compared: its findings are confirmed, and have their ids.
    """

    compared: Compared
    reads: FindingReads


class PlanCheck:
    """
    Args:
        kafka: opens the plan's cluster at the first use.
        open_reader: opens a reader of committed records.
        progress: called with sentences.
    """

    def __init__(
        self, admin: Administrator, plan: MigrationPlan, kafka: Callable[[], ClusterAdmin], engine: EnginePositions,
        open_reader: Callable[[], PartitionReader], progress: Callable[[str], object],
    ) -> None:  # fmt: skip
        self._admin, self._plan, self._kafka, self._engine = admin, plan, kafka, engine
        self._open_reader, self._progress = open_reader, progress

    def compare(self, span: TimeSpan, *, awaits_copies: bool = True) -> list[CheckedTopic]:
        """Compare every topic. Blocks; raises PlanRefused, KafkaFault, AdminError, OSError, PayloadError.

        Args:
            awaits_copies: wait first until the copies have what Kafka has now; else what they lack is not judged.
        """
        definitions = [self._definition(name) for name in self._plan.topic_names]
        if awaits_copies:
            wait_for_copies(self._kafka(), self._engine, definitions, span.to_ms, self._open_reader, self._progress)
        back = CopiedPositions(self._kafka, self._open_reader, position_group(self._plan.name))
        finder = BoundsFinder(self._kafka(), self._engine, self._open_reader, back, span)
        found: list[CheckedTopic] = []
        for some in _together(definitions):
            found += self._compare(finder, some)
        return found

    def _definition(self, name: str) -> TopicDefinition:
        entry = self._admin.store.get("topic", name)
        if entry is None:
            raise PlanRefused(f"topic {name}: it has no entry: start the plan first")
        return TopicDefinition.from_value(name, entry.value)

    def _compare(self, finder: BoundsFinder, definitions: Sequence[TopicDefinition]) -> list[CheckedTopic]:
        """Compare topics whose records of Kafka are read together."""
        finder.look_ahead(definitions)
        bounds = [finder.of(each, self._has_copy_back(each.name)) for each in definitions]
        comparisons = [
            TopicComparison(
                each, self._engine, self._open_reader, self._progress, widened=finder.widened if each.is_dual else None
            )
            for each in bounds
        ]
        read_kafka(comparisons, self._open_reader, self._progress)
        return [self._confirmed(each, one.run()) for each, one in zip(bounds, comparisons, strict=True)]

    def _has_copy_back(self, name: str) -> bool:
        copy = self._admin.store.get(CopyOutDefinition.kind, name)
        return copy is not None and copy.value.get("plan") == self._plan.name

    def _confirmed(self, bounds: TopicBounds, compared: Compared) -> CheckedTopic:
        reads = FindingReads(bounds, self._kafka(), self._engine, self._open_reader)
        kept = reads.confirmed(compared.findings)
        for gone in compared.findings:
            compared.counts[gone.kind] -= 1
        for each in kept:
            compared.counts[each.kind] += 1
        compared.findings = kept
        return CheckedTopic(compared, reads)

    def repair(
        self, checked: list[CheckedTopic], open_producer: Callable[[], KafkaProducer], take: str = ""
    ) -> Repaired:
        """Repair the findings that are listed. Raises as `compare`."""
        results = [TopicRepair(each.reads, open_producer).repair(each.compared.findings, take) for each in checked]
        refused = [sentence for each in results for sentence in each.refused]
        return Repaired(sum(each.engine for each in results), sum(each.kafka for each in results), refused)

    def keep(self, checked: list[CheckedTopic], span: TimeSpan) -> None:
        """Keep the result for reports, in place of the one before."""
        store, now_ms = self._admin.store, self._admin.clock.now_ms()
        found = store.get(KIND, self._plan.name)
        findings = [row for each in checked for row in finding_rows(each.compared)]
        value = {
            "at_ms": now_ms, "from_ms": span.from_ms, "to_ms": span.to_ms,
            "topics": _kept_topics([topic_row(each.compared) for each in checked]),
            "findings": _that_fit(findings[:FINDINGS_KEPT_MAX], FINDINGS_BYTES_MAX),
        }  # fmt: skip
        store.put(KIND, self._plan.name, value, found.version if found is not None else 0)


def _together(definitions: Sequence[TopicDefinition]) -> Iterator[list[TopicDefinition]]:
    """Topics that are read together: some, as a fetch holds up to 1 MiB per partition, and their ends are taken at once."""
    some: list[TopicDefinition] = []
    for each in definitions:
        if some and sum(one.queues for one in some) + each.queues > PARTITIONS_AT_ONCE:
            yield some
            some = []
        some.append(each)
    if some:
        yield some


def topic_row(compared: Compared) -> dict[str, Any]:
    """A topic's result as values of JSON."""
    counts = {kind.name.lower(): compared.counts[kind] for kind in DiscrepancyKind}
    return {
        "topic": compared.topic, "kafka": compared.kafka, "engine": compared.engine,
        "kafka_bytes": compared.kafka_bytes, "engine_bytes": compared.engine_bytes, "windows": compared.windows,
        "differing": compared.differing, **counts,
    }  # fmt: skip


def _kept_topics(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = _that_fit(rows, TOPICS_BYTES_MAX)
    if len(kept) == len(rows):
        return rows
    by_difference = sorted(rows, key=lambda row: not any(row[name] for name in DIFFERENCES))
    kept = _that_fit(by_difference, TOPICS_BYTES_MAX)
    rest = by_difference[len(kept) :]
    total = {name: sum(row[name] for row in rest) for name in rest[0] if name != "topic"}
    return [*kept, {"topic": f"({len(rest):,} others)", **total}]


def _that_fit(rows: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The first rows, as many as have room."""
    ends = itertools.accumulate(len(json.dumps(row)) + 1 for row in rows)
    return [row for row, end in zip(rows, ends, strict=True) if end <= room]


def finding_rows(compared: Compared) -> list[dict[str, Any]]:
    """A topic's listed findings as values of JSON."""
    return [
        {
            "topic": compared.topic, "queue": each.queue, "what": str(each.kind), "id": each.id,
            "in_kafka": each.kafka_count, "in_engine": each.engine_count, "kafka_offsets": [*each.kafka_offsets],
            "engine_offsets": [*each.engine_offsets],
        }
        for each in compared.findings
    ]  # fmt: skip


def divergence(checked: list[CheckedTopic]) -> int:
    """Ids that differ, over all topics."""
    return sum(
        count
        for each in checked
        for kind, count in each.compared.counts.items()
        if kind is not DiscrepancyKind.SUPERSEDED
    )

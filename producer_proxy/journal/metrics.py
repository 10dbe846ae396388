"""Metrics of dual writes and of the repair journal. A proxy without a topic that has a secondary shows none of a pair.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_journal_working | 1: intents are written | 0: /readyz says why; secondaries are not written meanwhile |
| penstock_journal_bytes | bytes of the journal's files | near --journal-mib-max: the secondary is away too long |
| penstock_journal_diverging | messages that are, or may be, on the primary only | above 0 for long: /readyz says why |
| penstock_journal_missed_total | messages that no intent covers | above 0: their ranges have to be compared |
| penstock_journal_ranges | ranges of such messages | `penstock migrate status` lists them |
| penstock_journal_dead | messages that the secondary will never take | `penstock migrate status` lists them |
| penstock_journal_damaged_total | entries that could not be read | check the disk; the log names the entry |
| penstock_dual_copied_total{secondary} | messages that the secondary took at once | - |
| penstock_dual_repaired_total{secondary} | messages that it took later | rising: it fails, or is slower than the load |
| penstock_dual_dropped_total{secondary} | intents that the primary never stored | - |
| penstock_dual_unverified_total | copied though the primary could not be asked | start the engine with --look-up id |
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from producer_proxy.journal.copying import SecondaryCopies
from producer_proxy.journal.journaling import Journaling


class JournalMetrics:
    """A collector over the journal and the pairs in use."""

    def __init__(self, journaling: Journaling) -> None:
        self._journaling = journaling

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        journaling = self._journaling
        ranges, journal = journaling.intents.ranges, journaling.journal
        if journal is None and not journaling.pairs:
            return
        for name, text, value in (
            ("working", "1: intents are written", not journaling.intents.fault),
            ("bytes", "bytes of the journal", 0 if journal is None else journal.bytes),
            ("diverging", "messages that the secondary lacks", journaling.backlog.count),
            ("ranges", "ranges to compare", len(ranges.all)),
            ("dead", "messages that the secondary refuses", 0 if journal is None else journal.dead.count),
        ):
            yield GaugeMetricFamily(f"penstock_journal_{name}", text, value=value)
        yield CounterMetricFamily("penstock_journal_missed", "messages without an intent", value=ranges.count)
        damaged = 0 if journal is None else journal.damaged
        yield CounterMetricFamily("penstock_journal_damaged", "entries that could not be read", value=damaged)
        yield from _of_pairs(
            {each.target.secondary.name: each.copies for each in journaling.pairs.values() if each.copies}
        )


def _of_pairs(pairs: dict[str, SecondaryCopies]) -> Iterator[Metric]:
    families = [
        CounterMetricFamily(f"penstock_dual_{name}", text, labels=["secondary"])
        for name, text in (
            ("copied", "messages copied at once"), ("repaired", "messages repaired"),
            ("dropped", "intents that the primary never stored"), ("unverified", "copied without asking the primary"),
        )
    ]  # fmt: skip
    for secondary, copies in pairs.items():
        repairer = copies.repairer
        values = (copies.copied, repairer.repaired, repairer.dropped, repairer.unverified)
        for family, value in zip(families, values, strict=True):
            family.add_metric([secondary], value)
    yield from families

"""Figures from the /metrics pages of the processes: rates, latency, refusals, buffers, replication."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from common.contract import Code
from common.ops.page_reader import Address, read_page, read_text, readiness_of
from console.database.series_history import ALL, SeriesKey
from console.watching.counter_rates import CounterRates, quantile
from console.watching.figures import REFUSED, Sample
from console.watching.part_states import KEY_USE, PartStates, Scraped, part_states
from console.watching.topic_pages import TopicPages

FAMILIES = (
    "penstock_producer_", "penstock_consumer_", "penstock_buffer_", "penstock_broker_", "penstock_breaker_",
    "penstock_config_age_seconds", "penstock_config_damaged", "penstock_kafka_bridge_", KEY_USE,
)  # fmt: skip


class MetricsPages:
    """
    Args:
        addresses: the operators' ports of the processes; without one, its figures are missing.
        read: reads the page of one address; raises OSError. read_reasons: as well, of /readyz, for the map.

    Attributes:
        states: of breakers, buffers and more by the last sample: the map costs the processes nothing more.
    """

    def __init__(
        self, addresses: Sequence[Address], read: Callable[[Address], str] | None = None,
        read_reasons: Callable[[Address], tuple[str, ...]] | None = None,
        topics: TopicPages | None = None,
    ) -> None:  # fmt: skip
        self._addresses, self._read = tuple(addresses), read or _read_figures
        self._read_reasons = read_reasons or reasons_of
        self.topics = topics or TopicPages(read_text)
        self.states = PartStates()
        self._rates = CounterRates()
        self.away: list[str] = []

    @property
    def is_configured(self) -> bool:
        return bool(self._addresses)

    def sample(self, at_s: float) -> Sample:
        """The figures now. Pages that do not answer are named in `away`."""
        rows: list[Scraped] = []
        away = []
        producers = []
        for address in self._addresses:
            shown = f"{address[0]}:{address[1]}"
            try:
                own = _rows(shown, self._read(address))
                rows += own
                if any(row.name.startswith("penstock_producer_") for row in own):
                    producers.append(address)
            except (OSError, ValueError):
                away.append(shown)
        self.away = away
        self.states = self._with_reasons(part_states(time.time(), rows))
        self._rates.forget_old(at_s)
        if not rows:
            return {}
        told = self.topics.sample(producers, at_s)
        return {**told, **self._traffic(rows, at_s), **_buffers(rows), **_replicas(rows, time.time())}

    def _with_reasons(self, states: PartStates) -> PartStates:
        """The states with the sentences of those processes that tell of something wrong."""
        reasons = {}
        for address in self._addresses:
            if (shown := f"{address[0]}:{address[1]}") in states.troubled:
                try:
                    reasons[shown] = self._read_reasons(address)
                except (OSError, ValueError):
                    reasons[shown] = ()
        return replace(states, reasons=reasons)

    def _traffic(self, rows: Sequence[Scraped], at_s: float) -> Sample:
        found: dict[str, float] = defaultdict(float)
        buckets: dict[float, float] = defaultdict(float)
        for row in rows:
            labels = tuple(sorted(row.labels.items()))
            name = _counted(row)
            if name is not None:
                found[name] += self._rates.rate((row.address, row.name, labels), row.value, at_s) or 0.0
            elif row.name == "penstock_producer_send_seconds_bucket":
                rate = self._rates.rate((row.address, row.name, labels), row.value, at_s)
                buckets[float(row.labels["le"])] += rate or 0.0
        ordered = sorted(buckets.items())
        for share, name in ((0.5, "send_p50"), (0.99, "send_p99")):
            if (value := quantile(share, ordered)) is not None:
                found[name] = value
        found["refused"] = sum(value for name, value in found.items() if name.startswith(REFUSED))
        return {SeriesKey(ALL, name): value for name, value in found.items()}


def _counted(row: Scraped) -> str | None:
    """The figure that a counter adds to."""
    if row.name == "penstock_producer_messages_total":
        return "in"
    if row.name == "penstock_consumer_deliveries_total":
        return "out"
    if row.name == "penstock_producer_refused_total":
        code = Code._NAMES_TO_VALUES.get(row.labels.get("code", ""), Code.OK)
        return f"{REFUSED}{code}" if code != Code.OK else None
    return None


def _buffers(rows: Iterable[Scraped]) -> Sample:
    found: Sample = {}
    for row in rows:
        if row.name == "penstock_buffer_entries":
            key = SeriesKey(ALL, "buffer")
            found[key] = found.get(key, 0.0) + row.value
        elif row.name == "penstock_buffer_oldest_seconds":
            key = SeriesKey(ALL, "buffer_s")
            found[key] = max(found.get(key, 0.0), row.value)
    return found


def _replicas(rows: Iterable[Scraped], now_s: float) -> Sample:
    """Of each slave the distance to its master, as the master's page tells it."""
    found: Sample = {}
    for row in rows:
        subject = f"broker:{row.labels.get('broker', '')}"
        if row.name == "penstock_broker_follower_gap_bytes":
            found[SeriesKey(subject, "replica_gap")] = row.value
        elif row.name == "penstock_broker_follower_lacks_since_timestamp_seconds":
            found[SeriesKey(subject, "replica_gap_s")] = max(0.0, now_s - row.value) if row.value > 0 else 0.0
    return found


def _rows(address: str, page: str) -> list[Scraped]:
    return [
        Scraped(address, each.name, each.labels, each.value)
        for family in text_string_to_metric_families(page)
        if family.name.startswith(FAMILIES)
        for each in family.samples
    ]


def reasons_of(address: Address) -> tuple[str, ...]:
    """The faults and the notes of /readyz, as sentences. Raises OSError, ValueError."""
    found = readiness_of(read_page(address, "/readyz"))
    return tuple(f"{subject}: {reason}" for subject, reason in {**found.faults, **found.notes}.items())


def _read_figures(address: Address) -> str:
    """Without series of topics and groups, which cost an engine most: their figures are asked of the engines."""
    return read_text(address, "/metrics?series=none")

"""Figures from the /metrics pages of the processes: rates, latency, refusals, buffers, replication."""

import http.client
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from common.contract import Code
from console.database.series_history import ALL, SeriesKey
from console.watching.counter_rates import CounterRates, quantile
from console.watching.figures import REFUSED, Sample

Address = tuple[str, int]
PAGE_S_MAX = 2.0
PAGE_BYTES_MAX = 4 << 20


class Scraped(NamedTuple):
    """One value of a page: the process's address, name, labels."""

    address: str
    name: str
    labels: dict[str, str]
    value: float


class MetricsPages:
    """
    Args:
        addresses: the operators' ports of the processes; without one, its figures are missing.
        read: reads the page of one address; raises OSError.
    """

    def __init__(self, addresses: Sequence[Address], read: Callable[[Address], str] | None = None) -> None:
        self._addresses, self._read = tuple(addresses), read or read_page
        self._rates = CounterRates()
        self.away: list[str] = []

    @property
    def is_configured(self) -> bool:
        return bool(self._addresses)

    def sample(self, at_s: float) -> Sample:
        """The figures now. Pages that do not answer are named in `away`."""
        rows: list[Scraped] = []
        away = []
        for address in self._addresses:
            shown = f"{address[0]}:{address[1]}"
            try:
                rows += _rows(shown, self._read(address))
            except (OSError, ValueError, http.client.HTTPException):
                away.append(shown)
        self.away = away
        self._rates.forget_old(at_s)
        if not rows:
            return {}
        return {**self._traffic(rows, at_s), **_buffers(rows), **_replicas(rows, time.time())}

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
        if family.name.startswith(("penstock_producer_", "penstock_consumer_", "penstock_buffer_", "penstock_broker_"))
        for each in family.samples
    ]


def read_page(address: Address) -> str:
    """Read /metrics. Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection(address[0], address[1], timeout=PAGE_S_MAX)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"status {answer.status}")
        return answer.read(PAGE_BYTES_MAX).decode("utf-8", "replace")
    finally:
        connection.close()

"""When each key was used last, for whoever wants to revoke the old one of two.

Noted when a credential is verified, which is done once for each credential and again after changes of the configuration; a credential holds
for 300 s around its issue. So a key that is in use was noted within the last ten minutes, and a message costs nothing.
"""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

KEYS_MAX = 1000


class KeyUses:
    """The keys that were used last, up to a bound."""

    def __init__(self) -> None:
        self._at_ms: dict[tuple[str, str], int] = {}

    def note(self, app: str, key_id: str, now_ms: int) -> None:
        """The key has signed a credential that verified."""
        self._at_ms.pop((app, key_id), None)
        self._at_ms[app, key_id] = now_ms
        if len(self._at_ms) > KEYS_MAX:
            del self._at_ms[next(iter(self._at_ms))]

    def collect(self) -> Iterator[Metric]:
        """For a Prometheus registry."""
        family = GaugeMetricFamily(
            "penstock_key_last_used_seconds",
            "When a credential of the key was verified last; within ten minutes of its last use.",
            labels=["app", "key_id"],
        )
        for (app, key_id), at_ms in list(self._at_ms.items()):
            family.add_metric([app, key_id], at_ms / 1000)
        yield family

    def describe(self) -> list[Metric]:
        """Registering reads nothing."""
        return []

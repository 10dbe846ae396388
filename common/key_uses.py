"""Last use of each key, for an operator who wants to revoke the old one of two.

A use is noted when a credential is verified: once per credential, and again after changes of the configuration. A
credential is valid for 300 s around its issue, so a key in use was noted within the last ten minutes, and messages cost
nothing.

name | type, unit | what to do about it
penstock_key_last_used_timestamp_seconds{app,key_id} | of the last 1,000 keys | long ago for the old key of two: revoke it
"""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

KEYS_MAX = 1000


class KeyUses:
    """The most recently used keys, up to a bound."""

    def __init__(self) -> None:
        self._at_ms: dict[tuple[str, str], int] = {}

    def note(self, app: str, key_id: str, now_ms: int) -> None:
        """Note a key that signed a verified credential."""
        self._at_ms.pop((app, key_id), None)
        self._at_ms[app, key_id] = now_ms
        if len(self._at_ms) > KEYS_MAX:
            del self._at_ms[next(iter(self._at_ms))]

    def collect(self) -> Iterator[Metric]:
        """The metric, for a Prometheus registry."""
        family = GaugeMetricFamily(
            "penstock_key_last_used_timestamp_seconds",
            "Unix time when a credential of the key was last verified; within ten minutes of its last use.",
            labels=["app", "key_id"],
        )
        for (app, key_id), at_ms in list(self._at_ms.items()):
            family.add_metric([app, key_id], at_ms / 1000)
        yield family

    def describe(self) -> list[Metric]:
        """No metrics, so that registering does not read the keys."""
        return []

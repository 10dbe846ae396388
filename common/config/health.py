"""The configuration of a process as its /readyz and /metrics show it.

| name | type, unit | what to do about it |
|---|---|---|
| penstock_config_age_seconds | time for which changes may have been missed | above 0: look at store and network |
| penstock_config_damaged | 1: the store is damaged and not followed | `penstock config verify`; docs/design/0025 |
| penstock_config_unreadable{kind} | definitions that cannot be read | upgrade, or write them anew; docs/design/0026 |
| penstock_config_trusted | 0: older than --config-age-max-s, credentials are refused | bring the store back |
| penstock_config_version{kind} | version in use | differs between processes for long: one is cut off |
"""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from common.config.kinds import DEFINITIONS
from common.config.view import ConfigView
from common.quoting import thing
from common.readiness import Note


def config_health(view: ConfigView | None) -> bool | str:
    """The condition of /readyz. A process serves with its last configuration, unless that is too old to be trusted."""
    if view is None:
        return Note("the configuration has not been read yet")
    if not view.is_trusted:
        return f"the configuration is {view.age_s:.0f} s old, more than --config-age-max-s: credentials are refused"
    if view.damage is not None:
        return Note(view.damage)
    if view.age_s > 0:
        return Note(f"no contact to the configuration store for {view.age_s:.0f} s: the last known one is in force")
    if view.access_fault:
        return Note(view.access_fault)
    if entries := view.unreadable:
        more = f" ({len(entries) - 1} more)" if len(entries) > 1 else ""
        subject = thing(entries[0].kind, entries[0].name)
        return Note(f"{subject}{more}: cannot be read, its last known form is in force: see `penstock config verify`")
    return True


class ConfigMetrics:
    """A collector over a view, which an engine has only some time after its start."""

    def __init__(self, view: Callable[[], ConfigView | None]) -> None:
        self._view = view

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        if view is None:
            return
        for name, text, value in (
            ("age_seconds", "time for which changes may have been missed", view.age_s),
            ("damaged", "1: the store is damaged and not followed", view.damage is not None),
            ("trusted", "0: too old, credentials are refused", view.is_trusted),
        ):
            yield GaugeMetricFamily(f"penstock_config_{name}", text, value=value)
        version = GaugeMetricFamily("penstock_config_version", "version in use", labels=["kind"])
        for kind, number in view.version.items():
            version.add_metric([kind], number)
        yield version
        unreadable = GaugeMetricFamily("penstock_config_unreadable", "definitions that cannot be read", labels=["kind"])
        counts = Counter(each.kind for each in view.unreadable)
        for kind in DEFINITIONS:
            unreadable.add_metric([kind], counts[kind])
        yield unreadable

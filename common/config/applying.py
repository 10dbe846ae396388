"""Waiting until every process works by a version of the configuration."""

import time

from common.config.store import ConfigStore, ConfigVersion


def laggards(store: ConfigStore, version: ConfigVersion) -> list[str]:
    """Living processes that have not reported `version` or a newer one."""
    reports = store.applied().items()
    return sorted(name for name, each in reports if any(each.version.get(kind, 0) < at for kind, at in version.items()))


def wait_applied(store: ConfigStore, version: ConfigVersion, deadline_s: float) -> list[str]:
    """Wait until nobody lags, at most for `deadline_s`, and return who still does. No process at all is nobody."""
    end = time.monotonic() + deadline_s
    while (late := laggards(store, version)) and time.monotonic() < end:
        time.sleep(0.02)
    return late

"""Waiting until every process has applied a version of the configuration."""

import time

from common.config.store import ConfigStore, ConfigVersion


def laggards(store: ConfigStore, version: ConfigVersion) -> list[str]:
    """Running processes that have not reported `version` or a newer one."""
    reports = store.applied().items()
    return sorted(name for name, each in reports if any(each.version.get(kind, 0) < at for kind, at in version.items()))


def wait_applied(store: ConfigStore, version: ConfigVersion, deadline_s: float) -> list[str]:
    """Wait until no process lags, for at most `deadline_s`, and return the processes that still do."""
    end = time.monotonic() + deadline_s
    while (late := laggards(store, version)) and time.monotonic() < end:
        time.sleep(0.02)
    return late

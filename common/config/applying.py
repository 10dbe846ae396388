"""Waiting until every process has applied a version of the configuration."""

import socket
import time

from common.config.store import Applied, ConfigStore, ConfigVersion
from common.utc import utc


def process_name(kind: str, host: str, port: int) -> str:
    """The name under which a process reports: its kind, the address that it serves, and the machine.

    It is the same after a restart, and two machines with the same address text differ.
    """
    return f"{kind}@{host}:{port}/{socket.gethostname()}"


def is_behind(report: Applied, version: ConfigVersion) -> bool:
    return any(report.version.get(kind, 0) < at for kind, at in version.items())


def missing(store: ConfigStore) -> dict[str, Applied]:
    """Expected processes without contact, each with its last report: cut off, or killed and not started again."""
    present = {name.partition(";")[0] for name in store.applied()}
    return {name: report for name, report in store.members().items() if name not in present}


def laggards(store: ConfigStore, version: ConfigVersion) -> list[str]:
    """Expected processes that are not known to have applied `version` or a newer one."""
    late = sorted(name for name, report in store.applied().items() if is_behind(report, version))
    return late + [f"{name} (no contact; last seen {utc(each.at_ms)})" for name, each in sorted(missing(store).items())]


def wait_applied(store: ConfigStore, version: ConfigVersion, deadline_s: float) -> list[str]:
    """Wait until no process lags, for at most `deadline_s`, and return the processes that still do."""
    end = time.monotonic() + deadline_s
    while (late := laggards(store, version)) and time.monotonic() < end:
        time.sleep(0.02)
    return late

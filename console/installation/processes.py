"""The processes that follow the configuration, and how far each has applied it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from common.admin import members
from common.admin.administrator import Administrator
from common.config.applying import missing
from common.config.store import ConfigStore

PRODUCER_PROXY, CONSUMER_PROXY = "producer_proxy", "consumer_proxy"


class ProcessState(NamedTuple):
    """One process, by its report. `state`: current, behind or no contact."""

    kind: str
    address: str
    machine: str
    state: str
    behind: list[str]
    reported_s_ago: float
    pid: int


class AppliedState(NamedTuple):
    """Whether one process has applied a change. `state`: applied, not yet or no contact."""

    process: str
    state: str


def process_states(admin: Administrator) -> list[ProcessState]:
    """All expected processes. Raises StoreUnavailable."""
    return [_state(row) for row in members.states(admin)]


def _state(row: dict[str, Any]) -> ProcessState:
    kind, _, place = row["name"].partition("@")
    address, _, machine = place.partition(";")[0].partition("/")
    return ProcessState(kind, address, machine, row["state"], row["behind"], row["reported_s_ago"], row["pid"])


def applied_states(store: ConfigStore, numbers: Mapping[str, int]) -> list[AppliedState]:
    """The processes that have applied these numbers by kind, and those that have not yet. Raises StoreUnavailable."""
    reports = store.applied()
    found = []
    for name, report in reports.items():
        has_all = all(report.version.get(kind, 0) >= number for kind, number in numbers.items())
        found.append(AppliedState(name, "applied" if has_all else "not yet"))
    return sorted(found + [AppliedState(name, "no contact") for name in missing(store)])


def addresses_of(store: ConfigStore, process: str) -> list[tuple[str, int]]:
    """Addresses of the processes of a kind that report. Raises StoreUnavailable."""
    found = []
    for name in store.applied():
        kind, _, place = name.partition("@")
        host, _, port = place.partition(";")[0].partition("/")[0].rpartition(":")
        if kind == process and host and port.isdigit():
            found.append((host.strip("[]"), int(port)))
    return found

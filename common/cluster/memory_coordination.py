"""Coordination in memory: the model that the others are tested against, for tests and for simulated nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from common.cluster.coordination import Coordination, Registration, VersionedRecord, Watcher
from common.cluster.group_record import GroupRecord
from common.cluster.history import parse_changes, with_change
from common.config.errors import StoreUnavailable, VersionConflict


@dataclass
class SharedCoordination:
    """The content of a server; MemoryCoordinations that share one are like several processes."""

    records: dict[str, VersionedRecord] = field(default_factory=dict)
    histories: dict[str, bytes] = field(default_factory=dict)
    brokers: dict[str, dict[str, tuple[Registration, "MemoryCoordination"]]] = field(default_factory=dict)
    candidates: list[tuple[str, "MemoryCoordination"]] = field(default_factory=list)
    clients: list["MemoryCoordination"] = field(default_factory=list)


class MemoryCoordination(Coordination):
    """Watchers are called before the call that made the change returns: tests need not wait. Not for several threads."""

    def __init__(self, shared: SharedCoordination | None = None) -> None:
        self._shared = shared or SharedCoordination()
        self._shared.clients.append(self)
        self._is_away = False
        self._wanted: dict[tuple[str, str], Registration] = {}
        self._name, self._rank = "", 0
        self._watchers: list[tuple[str, Watcher]] = []
        self._group_watchers: list[Callable[[], None]] = []

    def peer(self) -> "MemoryCoordination":
        """The coordination of another process."""
        return MemoryCoordination(self._shared)

    def set_available(self, available: bool) -> None:
        """Begin or end an outage of the contact; the session lives on."""
        self._is_away = not available
        if available:
            self._take_names()
            self._tell_all()

    def end_session(self) -> None:
        """Have the server end this process's session, as it does after an outage. A later contact makes another one."""
        changed = self._drop(lambda owner: owner is self)
        self._shared.candidates = [each for each in self._shared.candidates if each[1] is not self]
        if not self._is_away:
            self._take_names()
        self._tell(changed)

    def groups(self) -> list[str]:
        self._check()
        return sorted(self._shared.records.keys() | self._shared.brokers.keys())

    def record(self, group: str) -> VersionedRecord | None:
        self._check()
        return self._shared.records.get(group)

    def write(self, group: str, record: GroupRecord, version: int) -> int:
        self._check()
        found = self._shared.records.get(group)
        known = found.version if found else 0
        if known != version:
            raise VersionConflict("broker_group", group, version, known)
        self._shared.records[group] = VersionedRecord(record, version + 1)
        self._tell({group})
        return version + 1

    def history(self, group: str) -> list[VersionedRecord]:
        self._check()
        return parse_changes(self._shared.histories.get(group, b""))

    def remember(self, group: str, change: VersionedRecord) -> None:
        self._check()
        self._shared.histories[group] = with_change(self._shared.histories.get(group, b""), change)

    def brokers(self, group: str) -> dict[str, Registration]:
        self._check()
        return {name: registration for name, (registration, _) in self._shared.brokers.get(group, {}).items()}

    def register(self, group: str, broker: str, registration: Registration) -> None:
        self._wanted[group, broker] = registration
        self._take_names()

    def unregister(self, group: str, broker: str) -> None:
        if self._wanted.pop((group, broker), None) is not None and self._holds(group, broker):
            del self._shared.brokers[group][broker]
            self._tell({group})

    def watch(self, group: str, watcher: Watcher) -> None:
        self._watchers.append((group, watcher))
        if not self._is_away:
            watcher(group)

    def watch_groups(self, watcher: Callable[[], None]) -> None:
        self._group_watchers.append(watcher)
        if not self._is_away:
            watcher()

    def stand(self, name: str) -> None:
        self._name = name
        self._take_names()

    def rank(self, number: int) -> None:
        if number != self._rank:
            self._rank = number
            self._tell(set())

    def controller(self) -> str | None:
        return self._elected[0] if self._elected is not None and not self._is_away else None

    def is_controller(self) -> bool:
        return not self._is_away and self._elected is not None and self._elected[1] is self

    @property
    def _elected(self) -> "tuple[str, MemoryCoordination] | None":
        return min(self._shared.candidates, key=lambda each: each[1]._rank, default=None)

    def contact_age_s(self) -> float:
        return float("inf") if self._is_away else 0.0

    def close(self) -> None:
        self._wanted, self._name = {}, ""
        self._watchers, self._group_watchers = [], []
        self.end_session()
        if self in self._shared.clients:
            self._shared.clients.remove(self)

    def _check(self) -> None:
        if self._is_away:
            raise StoreUnavailable("coordination in memory: not available")

    def _holds(self, group: str, broker: str) -> bool:
        found = self._shared.brokers.get(group, {}).get(broker)
        return found is not None and found[1] is self

    def _drop(self, is_gone: Callable[["MemoryCoordination"], bool]) -> set[str]:
        """Drop registrations by their owner; returns the changed groups."""
        changed = set()
        for group, brokers in self._shared.brokers.items():
            for broker in [name for name, (_, owner) in brokers.items() if is_gone(owner)]:
                del brokers[broker]
                changed.add(group)
        return changed

    def _take_names(self) -> None:
        """Take the names that this process wants and that are free."""
        if self._is_away:
            return
        changed = set()
        for (group, broker), registration in self._wanted.items():
            brokers = self._shared.brokers.setdefault(group, {})
            if broker not in brokers or (brokers[broker][1] is self and brokers[broker][0] != registration):
                brokers[broker] = (registration, self)
                changed.add(group)
        stands = any(owner is self for _, owner in self._shared.candidates)
        if self._name and not stands:
            self._shared.candidates.append((self._name, self))
        if changed or (self._name and not stands):
            self._tell(changed)

    def _tell(self, groups: set[str]) -> None:
        """Tell all processes with contact of changed groups, and let them take the names that are free now."""
        for client in list(self._shared.clients):
            if not client._is_away:
                client._take_names()
                client._tell_own(groups)

    def _tell_all(self) -> None:
        self._tell_own({group for group, _ in self._watchers})

    def _tell_own(self, groups: set[str]) -> None:
        for group, watcher in list(self._watchers):
            if group in groups:
                watcher(group)
        for each in list(self._group_watchers):
            each()

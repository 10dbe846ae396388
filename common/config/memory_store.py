"""The store in memory: the model that the others are tested against, used by the tests of all other parts."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.clock import SystemClock
from common.config.bucketed import BucketedStore, Index, LostRace, Seen, check_seen
from common.config.errors import AccessDenied, StoreUnavailable
from common.config.identity import StoreIdentity
from common.config.store import KINDS, Applied, ConfigVersion


@dataclass
class Shared:
    """The content of a server; several MemoryConfigStores that share one are like several processes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    identity: StoreIdentity | None = None
    revisions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    payloads: dict[tuple[str, int], bytes] = field(default_factory=dict)
    applied: dict[str, Applied] = field(default_factory=dict)
    members: dict[str, Applied] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)
    watchers: list[Callable[[str], None]] = field(default_factory=list)
    pids: int = 0


class MemoryConfigStore(BucketedStore):
    """Watchers are called in the thread that made the change, before its put returns: tests need not wait."""

    def __init__(self, shared: Shared | None = None, *, is_reader: bool = False):
        """Args: is_reader: it may only write what proxies write."""
        super().__init__()
        self._is_reader = is_reader
        self._shared = shared or Shared()
        self._shared.pids += 1
        self._pid = self._shared.pids
        self._watchers: list[Callable[[str], None]] = []
        self._reports: set[str] = set()
        self._away_since_ms: int | None = None

    def peer(self, *, is_reader: bool = False) -> "MemoryConfigStore":
        """Another process's store with the same content."""
        return MemoryConfigStore(self._shared, is_reader=is_reader)

    def set_available(self, available: bool, now_ms: int | None = None) -> None:
        """Start or end an outage of this store."""
        self._away_since_ms = None if available else now_ms or SystemClock().now_ms()
        if available:
            for callback in self._watchers:
                for kind in KINDS:
                    callback(kind)

    def wipe(self, *kinds: str) -> None:
        """Lose these kinds, or without any the whole content with the identity, as a damaged store does."""
        shared = self._shared
        with shared.lock:
            shared.revisions = {kind: found for kind, found in shared.revisions.items() if kinds and kind not in kinds}
            shared.payloads = {key: found for key, found in shared.payloads.items() if kinds and key[0] not in kinds}
            shared.identity = shared.identity if kinds else None
        for callback in list(shared.watchers):
            for kind in kinds or KINDS:
                callback(kind)

    def _read_identity(self) -> StoreIdentity | None:
        self._check()
        return self._shared.identity

    def _create_identity(self, identity: StoreIdentity) -> None:
        self._shared.identity = self._shared.identity or identity

    def _replace_identity(self, identity: StoreIdentity) -> None:
        self._check()
        self._shared.identity = identity

    def _read_index(self, kind: str) -> Index:
        self._check()
        revisions = self._shared.revisions.get(kind, (0,) * KINDS[kind].buckets)
        return Index(revisions, revisions)

    def _read_buckets(self, kind: str, numbers: Sequence[int], index: Index) -> list[bytes]:
        self._check()
        return [self._shared.payloads.get((kind, number), b"") for number in numbers]

    def _commit(self, kind: str, payloads: dict[int, bytes], revisions: tuple[int, ...], token: Any, seen: Seen) -> Any:
        self._check()
        self._check_may_write(kind)
        with self._shared.lock:
            for other, wanted in seen.items():
                check_seen(other, wanted, self._read_index(other).revisions)
            if self._shared.revisions.get(kind, (0,) * KINDS[kind].buckets) != token:
                raise LostRace(kind)
            self._shared.revisions[kind] = revisions
            for number, payload in payloads.items():
                self._shared.payloads[kind, number] = payload
        for callback in list(self._shared.watchers):
            callback(kind)
        return revisions

    def found_buckets(self, kind: str) -> dict[int, bytes]:
        self._check()
        return {number: payload for (of, number), payload in self._shared.payloads.items() if of == kind}

    def set_index(self, kind: str, revisions: Sequence[int]) -> None:
        self._check()
        self._shared.revisions[kind] = tuple(revisions)

    def watch(self, callback: Callable[[str], None]) -> None:
        def while_available(kind: str) -> None:
            if self._away_since_ms is None:
                callback(kind)

        self._watchers.append(while_available)
        self._shared.watchers.append(while_available)

    @property
    def unavailable_since_ms(self) -> int | None:
        return self._away_since_ms

    def report_applied(self, process: str, version: ConfigVersion) -> None:
        self._check()
        self._reports.add(process)
        report = Applied(dict(version), self._pid, SystemClock().now_ms())
        self._shared.applied[process] = self._shared.members[process] = report

    def members(self) -> dict[str, Applied]:
        self._check()
        return dict(self._shared.members)

    def leave(self, process: str) -> None:
        self._reports.discard(process)
        self.forget(process)

    def applied(self) -> dict[str, Applied]:
        self._check()
        return dict(self._shared.applied)

    def forget(self, process: str) -> None:
        self._check()
        self._shared.applied.pop(process, None)
        self._shared.members.pop(process, None)

    def claim(self, name: str, *, by_proxy: bool = False) -> bool:
        self._check()
        return self._shared.claims.setdefault(name, self._pid) == self._pid

    def holds(self, name: str) -> bool:
        return self._shared.claims.get(name) == self._pid

    def release(self, name: str) -> None:
        if self.holds(name):
            del self._shared.claims[name]

    def close(self) -> None:
        self._shared.claims = {name: pid for name, pid in self._shared.claims.items() if pid != self._pid}
        for process in self._reports:
            self._shared.applied.pop(process, None)
        for callback in self._watchers:
            self._shared.watchers.remove(callback)
        self._watchers = []

    def _check_may_write(self, kind: str) -> None:
        if self._is_reader and not KINDS[kind].written_by_proxies:
            raise AccessDenied(f"memory store: {kind}: this process may only read it")

    def _check(self) -> None:
        if self._away_since_ms is not None:
            raise StoreUnavailable("memory store: in an outage")

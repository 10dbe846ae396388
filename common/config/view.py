"""A process's view of the configuration: in memory, updated with every change, saved on disk for a start without the
store.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.clock import Clock, SystemClock
from common.config import buckets as layout
from common.config import snapshot
from common.config.blocking import run_blocking
from common.config.broker_group import BrokerGroupDefinition
from common.config.definition import Definition
from common.config.definitions import ApplicationDefinition, GroupDefinition, TopicDefinition
from common.config.errors import InvalidDefinition, StoreDamaged, StoreUnavailable
from common.config.families import Families
from common.config.kind_view import KindView
from common.config.snapshot import Buckets
from common.config.store import FOLLOWED, KINDS, ConfigStore, ConfigVersion
from common.names import is_name

log = logging.getLogger("penstock.config")

SNAPSHOT_GAP_S = 1.0  # a burst of changes is written once
CONFIRM_S = 60.0  # interval at which an unchanged snapshot is marked as current


class ConfigView:
    def __init__(
        self,
        store: ConfigStore,
        snapshot_path: Path | str | None = None,
        *,
        process: str | None = None,
        clock: Clock | None = None,
    ):
        """Load everything from the store, or from the snapshot while the store is unavailable, and follow changes from
        then on.

        Args:
            snapshot_path: file for the last state; None: none is kept.
            process: name under which the applied version is reported to the store after each change.
        Raises:
            StoreUnavailable: the store is unavailable and there is no usable snapshot.
        """
        self._store = store
        self._snapshot_path = Path(snapshot_path) if snapshot_path else None
        self._process = process
        self._clock = clock or SystemClock()
        self._callbacks: list[Callable[[], None]] = []
        self._refreshing = threading.Lock()
        self._kinds = {
            kind: KindView(Buckets((0,) * KINDS[kind].buckets, (b"",) * KINDS[kind].buckets)) for kind in FOLLOWED
        }
        self._unsynced = set(FOLLOWED)  # kinds that may be older than the store
        self._snapshot_at_ms: int | None = None  # while some kind is from the snapshot: the time when that was current
        self._families = Families()
        self.generation = 1
        self._unsaved = False
        self._wake = threading.Event()
        self._closed = threading.Event()
        store.watch(self._changed)  # before the first load, so that no change falls between the two
        self._load()
        self._keeper = threading.Thread(target=self._keep, name="config-view", daemon=True)
        self._keeper.start()

    def topic(self, name: str) -> TopicDefinition | None:
        """The topic's own definition, else that of the family with the longest matching prefix."""
        return self._find("topic", name, TopicDefinition.from_value)

    def group(self, name: str) -> GroupDefinition | None:
        return self._find("group", name, GroupDefinition.from_value)

    def application(self, name: str) -> ApplicationDefinition | None:
        return self._find("application", name, ApplicationDefinition.from_value)

    def broker_groups(self) -> list[BrokerGroupDefinition]:
        """All broker groups by name; empty where the configuration names none. Invalid ones are left out."""
        names = sorted(name for name, _ in self._kinds["broker_group"].entries())
        found = [self._find("broker_group", name, BrokerGroupDefinition.from_value) for name in names]
        return [each for each in found if each is not None]

    def setting(self, name: str) -> dict[str, Any] | None:
        return self._find("setting", name, lambda name, value: dict(value))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback()` after each change, once `generation` has risen; from the store's thread or greenlet."""
        self._callbacks.append(callback)

    @property
    def version(self) -> ConfigVersion:
        """The version that this view shows, in the store's numbers."""
        return {kind: sum(view.buckets.revisions) for kind, view in self._kinds.items()}

    @property
    def age_s(self) -> float:
        """Time for which changes of the store may have been missed; 0.0 while there is contact."""
        since_ms = self._snapshot_at_ms or self._store.unavailable_since_ms
        return 0.0 if since_ms is None else max(0.001, (self._clock.now_ms() - since_ms) / 1000)

    def close(self) -> None:
        """Stop following and write the last snapshot; the store stays open."""
        self._closed.set()
        self._wake.set()
        self._keeper.join()

    def _find(self, kind: str, name: str, parse: Callable[[str, Any], Any]) -> Any:
        view = self._kinds[kind]
        number = layout.bucket_of(name, len(view.recent))
        try:
            return view.recent[number][name]
        except KeyError:
            found = view.older[number].get(name, view)
            if found is view:  # in neither generation
                found = self._parse(kind, view.text(number), name, parse)
            view.keep(number, name, found)
            return found

    def _parse(
        self, kind: str, text: bytes, name: str, parse: Callable[[str, Any], Any]
    ) -> Definition | BrokerGroupDefinition | None:
        if not is_name(name):
            return None
        entry = layout.find(text, name)
        if entry is None:
            return self._families.topic(name) if kind == "topic" else None
        try:
            return parse(name, entry.value)
        except InvalidDefinition as fault:
            log.warning("%s=%s: invalid, treated as unknown: %s", kind, name, fault)
            return None

    def _load(self) -> None:
        try:
            for kind in FOLLOWED:
                self._refresh(kind)
            self._unsaved = True
            self._wake.set()
        except (StoreUnavailable, StoreDamaged) as error:
            self._start_on_snapshot(error)

    def _start_on_snapshot(self, error: Exception) -> None:
        saved = snapshot.load(self._snapshot_path) if self._snapshot_path else None
        if saved is None:
            raise StoreUnavailable(f"{error}; there is no snapshot to start from") from error
        with self._refreshing:
            for kind in self._unsynced & saved.kinds.keys():
                self._show(kind, KindView(saved.kinds[kind]))
            if self._unsynced:
                self._snapshot_at_ms = saved.current_at_ms
        log.warning("config: started from the snapshot, which is %.0f s old: %s", self.age_s, error)

    def _changed(self, kind: str) -> None:
        if kind not in self._kinds or self._closed.is_set():
            return
        try:
            self._refresh(kind)
        except (StoreUnavailable, StoreDamaged) as error:
            log.warning("config kind=%s: cannot be read, keeping its last state: %s", kind, error)
            self._unsynced.add(kind)  # the keeper tries again
            self._wake.set()

    def _refresh(self, kind: str) -> None:
        with self._refreshing:
            old = self._kinds[kind]
            new = self._fetch(kind, old.buckets)
            changed = new.revisions != old.buckets.revisions
            if changed:
                self._show(kind, old.successor(new))
                self.generation += 1
            first = kind in self._unsynced
            self._unsynced.discard(kind)
            if not self._unsynced:
                self._snapshot_at_ms = None
        if changed:
            self._announce()
        if self._process and not self._unsynced and (changed or first):
            self._store.report_applied(self._process, self.version)

    def _show(self, kind: str, view: KindView) -> None:
        if kind == "family":
            self._families = Families(view.entries())
            # After the families: a reader that still uses the old view caches there what it finds by the old families.
            self._kinds["topic"] = self._kinds["topic"].unparsed()
        self._kinds[kind] = view

    def _fetch(self, kind: str, old: Buckets) -> Buckets:
        """The kind's current buckets.

        A bucket may be newer than the index read here; its change will be reported later.
        """
        revisions = tuple(self._store.index(kind))
        same_layout = len(revisions) == len(old.payloads)
        payloads = list(old.payloads) if same_layout else [b""] * len(revisions)
        stale = [
            number for number, revision in enumerate(revisions) if revision != layout.revision_of(payloads[number])
        ]
        for number, payload in zip(stale, self._store.buckets(kind, stale) if stale else [], strict=True):
            payloads[number] = layout.verify(payload, f"{kind} bucket {number}")
        return Buckets(revisions, tuple(payloads))

    def _announce(self) -> None:
        self._unsaved = True
        self._wake.set()
        for callback in list(self._callbacks):
            try:
                callback()
            except Exception:
                log.exception("config: a listener for changes failed")

    def _keep(self) -> None:
        """Write snapshots and repeat refreshes that failed, until closed."""
        while not self._closed.is_set():
            self._wake.wait(SNAPSHOT_GAP_S if self._unsynced else CONFIRM_S)
            self._wake.clear()
            for kind in list(self._unsynced) if self._store.unavailable_since_ms is None else []:
                self._changed(kind)
            self._save()
            self._closed.wait(SNAPSHOT_GAP_S)

    def _save(self) -> None:
        path = self._snapshot_path
        if path is None or self._snapshot_at_ms is not None:
            return
        if not self._unsaved:
            if self.age_s == 0.0:
                snapshot.mark_current(path)
            return
        self._unsaved = False
        kinds = {kind: view.buckets for kind, view in self._kinds.items()}
        try:
            run_blocking(lambda: snapshot.save(path, kinds, self._clock.now_ms()))
        except OSError as error:
            self._unsaved = True
            log.warning("snapshot=%s: cannot be written, will be tried again: %s", path, error)

"""A process's view of the configuration: in memory, updated with every change, saved on disk for a start without the
store.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from common.clock import Clock, SystemClock
from common.config import buckets as layout
from common.config import snapshot
from common.config.blocking import run_blocking
from common.config.broker_group import BrokerGroupDefinition
from common.config.definition import Definition
from common.config.definitions import ApplicationDefinition, GroupDefinition, KafkaClusterDefinition, TopicDefinition
from common.config.definitions.readable_part import readable_part, tells_keys
from common.config.ended_fences import without_ended_fence
from common.config.errors import InvalidDefinition, StoreDamaged, StoreUnavailable
from common.config.families import Families
from common.config.guard import StoreGuard
from common.config.kind_view import KindView
from common.config.kinds import DEFINITIONS
from common.config.last_known import LastKnown, UnreadableEntry, changes
from common.config.placed_topics import PlacedTopicIndex
from common.config.process_report import ProcessReport
from common.config.root_keys import RootKeys
from common.config.snapshot import Buckets
from common.config.store import FOLLOWED, GENERATION, KINDS, ConfigStore, ConfigVersion
from common.limited_log import LimitedLog
from common.names import is_name

log = logging.getLogger("penstock.config")
limited = LimitedLog(log)

SNAPSHOT_GAP_S = 1.0  # a burst of changes is written once
CONFIRM_S = 60.0  # interval at which an unchanged snapshot is marked as current
D = TypeVar("D", bound=Definition)
_PARSE = {kind: each.from_value for kind, each in DEFINITIONS.items()}


class ConfigView:
    def __init__(
        self, store: ConfigStore, snapshot_path: Path | str | None = None, *, process: str | None = None,
        age_s_max: float = 0.0, clock: Clock | None = None,
    ):  # fmt: skip
        """Load everything from the store, or from the snapshot while the store is unavailable, and follow changes from
        then on.

        Args:
            snapshot_path: file for the last state; None: none is kept.
            process: name under which the applied version is reported to the store after each change.
            age_s_max: the configuration is not trusted while it is older; 0: it always is.
        Raises:
            StoreUnavailable: the store is unavailable and there is no usable snapshot.
        """
        self._store, self._clock = store, clock or SystemClock()
        self._snapshot_path = Path(snapshot_path) if snapshot_path else None
        self._age_s_max = age_s_max
        self.own_report = ProcessReport(store, process, lambda: self.version)
        self.root_keys = RootKeys()  # of this process, for keys whose secrets are derived
        self._trust: tuple[bool, frozenset[str]] = (True, frozenset())
        self._callbacks: list[Callable[[], None]] = []
        self._refreshing = threading.Lock()
        self._kinds = {
            kind: KindView(Buckets((0,) * KINDS[kind].buckets, (b"",) * KINDS[kind].buckets)) for kind in FOLLOWED
        }
        self._unsynced = set(FOLLOWED)  # kinds that may be older than the store
        self._snapshot_at_ms: int | None = None  # while some kind is from the snapshot: the time when that was current
        self._ended_fences: dict[str, Any] = {}
        self._families, self._guard, self.placed_topics = Families(), StoreGuard(), PlacedTopicIndex()
        self._last_known = LastKnown({}, _PARSE, self._clock)
        self._damage: dict[str, str] = {}  # by kind: why the store's state is not taken
        self._damaged_since_ms: int | None = None
        self.generation, self._unsaved = 1, False
        self._wake, self._closed = threading.Event(), threading.Event()
        store.watch(self._changed)  # before the first load, so that no change falls between the two
        self._load()
        self._keeper = threading.Thread(target=self._keep, name="config-view", daemon=True)
        self._keeper.start()

    def topic(self, name: str) -> TopicDefinition | None:
        """The topic's own definition, else that of the family with the longest matching prefix."""
        return self._find("topic", name, self._topic_of)

    def group(self, name: str) -> GroupDefinition | None:
        return self._find("group", name, GroupDefinition.from_value)

    def application(self, name: str) -> ApplicationDefinition | None:
        return self._find("application", name, ApplicationDefinition.from_value)

    def broker_groups(self) -> list[BrokerGroupDefinition]:
        """All broker groups by name; empty where the configuration names none. Invalid ones are left out."""
        return self.all_of(BrokerGroupDefinition)

    def all_of(self, definition: type[D]) -> list[D]:
        """All definitions of a kind with few entries, by name. Invalid ones are left out."""
        names = sorted(name for name, _ in self._kinds[definition.kind].entries())
        return [each for name in names if (each := self.find(definition, name)) is not None]

    def names_with(self, kind: str, part: bytes) -> list[str]:
        """Names of the kind's entries whose stored text has this part, without parsing the others."""
        return self._kinds[kind].names_with(part)

    def stored(self, kind: str) -> KindView:
        """The kind's entries as they are stored now; later changes make another one."""
        return self._kinds[kind]

    def kafka_cluster(self, name: str) -> KafkaClusterDefinition | None:
        return self.find(KafkaClusterDefinition, name)

    def find(self, definition: type[D], name: str) -> D | None:
        return self._find(definition.kind, name, definition.from_value)

    def setting(self, name: str) -> dict[str, Any] | None:
        return self._find("setting", name, lambda name, value: dict(value))

    def was_deleted(self, kind: str, name: str) -> bool:
        """Whether the entry does not exist because it was deleted on purpose, and not because it was lost or never was."""
        return self._kinds[kind].was_deleted(name)

    def topic_was_deleted(self, name: str) -> bool:
        """Whether a topic without a definition had one that was deleted on purpose: its own, or its family's."""
        if self.topic(name) is not None:
            return False
        return self.was_deleted("topic", name) or any(
            name.startswith(family.removesuffix("*")) for family in self._kinds["family"].deletions()
        )

    def is_unreadable(self, kind: str, name: str) -> bool:
        """Whether the entry exists in a form that this version cannot read. Its last known form, if any, is in force."""
        is_known = layout.NAME.fullmatch(name) and kind in DEFINITIONS
        entry = self._kinds[kind].entry(name) if is_known else None
        if entry is None:
            return False
        try:
            DEFINITIONS[kind].from_value(name, entry.value)
        except InvalidDefinition:
            return True
        return False

    @property
    def unreadable(self) -> list[UnreadableEntry]:
        """The entries that exist in a form that this version cannot read, and whose last known form is in force."""
        return self._last_known.entries()

    def trusts_keys_of(self, name: str) -> bool:
        """Whether the application's keys are known to be valid: told by its definition, or new enough."""
        return name not in self._trust[1]

    @property
    def damage(self) -> str | None:
        """Why the store's state is not taken, though the store answers; None: it is taken."""
        return next(iter(self._damage.values()), None)

    @property
    def access_fault(self) -> str:
        return self._store.access_fault

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback()` after each change, once `generation` has risen; from the store's thread or greenlet."""
        self._callbacks.append(callback)

    @property
    def version(self) -> ConfigVersion:
        """The version that this view shows, in the store's numbers."""
        numbers = {kind: sum(view.buckets.revisions) for kind, view in self._kinds.items()}
        return numbers | {GENERATION: self._guard.generation}

    @property
    def age_s(self) -> float:
        """Time for which changes of the store may have been missed; 0.0 while there is contact."""
        since_ms = self._snapshot_at_ms or self._damaged_since_ms or self._store.unavailable_since_ms
        return 0.0 if since_ms is None else max(0.001, (self._clock.now_ms() - since_ms) / 1000)

    @property
    def is_trusted(self) -> bool:
        """Whether the configuration is new enough to say who may do what."""
        return not self._age_s_max or self.age_s <= self._age_s_max

    def _trusts(self, entry: UnreadableEntry) -> bool:
        if entry.kind != ApplicationDefinition.kind or not self._age_s_max:
            return True
        found = self._kinds[entry.kind].entry(entry.name)
        known_s = (self._clock.now_ms() - entry.since_ms) / 1000
        return found is None or tells_keys(found.value) or known_s <= self._age_s_max

    def close(self) -> None:
        """Stop following, write the last snapshot, report no more; the store stays open."""
        self._closed.set()
        self._wake.set()
        self._keeper.join()
        self.own_report.end()

    def _topic_of(self, name: str, value: Any) -> TopicDefinition:
        return without_ended_fence(TopicDefinition.from_value(name, value), self._ended_fences.get(name))

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

    def _parse(self, kind: str, text: bytes, name: str, parse: Callable[[str, Any], Any]) -> Any:
        if not is_name(name):
            return None
        entry = layout.find(text, name)
        if entry is None:
            return self._families.topic(name) if kind == "topic" else None
        try:
            return parse(name, entry.value)
        except InvalidDefinition as fault:
            if (kept := self._last_known.get(kind, name)) is not None:
                is_application = kind == ApplicationDefinition.kind
                return readable_part(name, entry.value, kept) if is_application else parse(name, kept)
            limited.warning("%s=%s: invalid, treated as unknown: %s", kind, name, fault, about=f"{kind}={name}")
            return None

    def _load(self) -> None:
        """Begin with the snapshot, against which the store's state is checked, and take what the store has."""
        saved = snapshot.load(self._snapshot_path) if self._snapshot_path else None
        with self._refreshing:
            if saved is not None:
                self._take_snapshot(saved)
        failure: Exception | None = None
        for kind in FOLLOWED:
            try:
                self._refresh(kind)
            except StoreDamaged as error:
                self._note_failure(kind, error)
                failure = failure or error
            except StoreUnavailable as error:
                failure = error
                break
        if failure is None:
            self._unsaved = True
            self._wake.set()
        elif saved is None:
            raise StoreUnavailable(f"{failure}; there is no snapshot to start from") from failure
        elif self._unsynced:
            log.warning("config: started from the snapshot, which is %.0f s old: %s", self.age_s, failure)

    def _take_snapshot(self, saved: snapshot.Snapshot) -> None:
        self._guard.restore(saved.identity, list(saved.kinds))
        self._last_known = LastKnown(saved.last_known, _PARSE, self._clock, saved.unreadable_since_ms)
        for kind in FOLLOWED:
            if kind in saved.kinds:
                self._show(kind, KindView(saved.kinds[kind]))
        self._snapshot_at_ms = saved.current_at_ms

    def _changed(self, kind: str) -> None:
        if kind not in self._kinds or self._closed.is_set():
            return
        self._try(kind)
        for other in self._guard.outdated():  # an operator has accepted the store as it is: all of it
            self._try(other)

    def _try(self, kind: str) -> None:
        try:
            self._refresh(kind)
        except (StoreUnavailable, StoreDamaged) as error:
            self._note_failure(kind, error)
            self._unsynced.add(kind)  # the keeper tries again
            self._wake.set()

    def _note_failure(self, kind: str, error: StoreUnavailable | StoreDamaged) -> None:
        if isinstance(error, StoreDamaged):
            self._damage[kind] = str(error)
            self._damaged_since_ms = self._damaged_since_ms or self._clock.now_ms()
        limited.warning("config kind=%s: keeping its last state: %s", kind, error, about=type(error).__name__)

    def _note_success(self, kind: str) -> None:
        self._unsynced.discard(kind)
        if self._damage.pop(kind, None) is not None and not self._damage:
            self._damaged_since_ms = None
            log.info("config: the store is sound again and is followed")
        if not self._unsynced:
            self._snapshot_at_ms = None

    def _refresh(self, kind: str) -> None:
        with self._refreshing:
            old = self._kinds[kind]
            identity = self._store.identity()
            self._guard.check_identity(identity)
            is_renewed = self._guard.is_renewed(kind, identity)
            new = self._fetch(kind, None if is_renewed else old.buckets)
            if not is_renewed:
                self._compare(kind, old.buckets, new)
            changed = is_renewed or new.revisions != old.buckets.revisions
            if changed:
                self._show(kind, KindView(new) if is_renewed else old.successor(new))
                if is_renewed:
                    self._last_known.retain(kind, partial(self.is_unreadable, kind))
                self.generation += 1
            first = kind in self._unsynced
            self._guard.take(kind, identity)
            self._note_success(kind)
        if changed:
            self._announce()
        if not self._unsynced and (changed or first):
            self.own_report.write()

    def _show(self, kind: str, view: KindView) -> None:
        if kind == "ended_fence":
            self._ended_fences = dict(view.entries())
        if kind == "family":
            self._families = Families(view.entries(), self._last_known.values.get(kind))
        if kind in ("ended_fence", "family"):
            # After those: a reader that still uses the old view caches there what it finds by the old ones.
            self._kinds["topic"] = self._kinds["topic"].unparsed()
        if kind == "topic":  # before the topics: a queue that a reader sees is placed already
            parse = partial(self._parse, kind, parse=TopicDefinition.from_value)
            run_blocking(partial(self.placed_topics.follow, view.buckets.payloads, parse))
        self._kinds[kind] = view

    def _compare(self, kind: str, old: Buckets, new: Buckets) -> None:
        """Check what has changed. Raises StoreDamaged."""
        changed = run_blocking(lambda: list(changes(kind, old, new)))
        if changed:
            self._guard.check_entries(kind, changed)
            run_blocking(lambda: self._last_known.note(kind, changed))

    def _fetch(self, kind: str, old: Buckets | None) -> Buckets:
        """The kind's current buckets; those of `old` with the same revision are not read again.

        A bucket may be newer than the index read here; its change will be reported later.
        """
        revisions = tuple(self._store.index(kind))
        if old is not None:
            self._guard.check_revisions(kind, old, revisions)
        same_layout = old is not None and len(revisions) == len(old.payloads)
        payloads = list(old.payloads) if old is not None and same_layout else [b""] * len(revisions)
        stale = [at for at, revision in enumerate(revisions) if revision != layout.revision_of(payloads[at])]
        for number, payload in zip(stale, self._store.buckets(kind, stale) if stale else [], strict=True):
            payloads[number] = layout.verify(payload, f"{kind} bucket {number}")
        return Buckets(revisions, tuple(payloads))

    def renew(self) -> None:
        """Void what was learnt from the configuration, because it is to be judged anew."""
        self.generation += 1
        self._announce()

    def _announce(self) -> None:
        self._unsaved = True
        self._wake.set()
        for callback in list(self._callbacks):
            try:
                callback()
            except Exception:
                limited.exception("config: a listener for changes failed")

    def _keep(self) -> None:
        """Write snapshots and repeat refreshes that failed, until closed."""
        while not self._closed.is_set():
            self._wake.wait(SNAPSHOT_GAP_S if self._unsynced or self._age_s_max else CONFIRM_S)
            self._wake.clear()
            self._check_trust()
            for kind in list(self._unsynced) if self._store.unavailable_since_ms is None else []:
                self._changed(kind)
            if self._damage:
                with suppress(StoreUnavailable):
                    self.own_report.write()  # the store may have lost its reports, too: commands wait for this process
            self._save()
            self._closed.wait(SNAPSHOT_GAP_S)
        self._save()  # what has changed since the last one

    def _check_trust(self) -> None:
        """Void what was learnt from the configuration when it has become too old, and when it is new again."""
        entries = self.unreadable
        trust = (self.is_trusted, frozenset(each.name for each in entries if not self._trusts(each)))
        if trust != self._trust:
            self._trust = trust
            self.renew()
        self._last_known.tell()

    def _save(self) -> None:
        path = self._snapshot_path
        if path is None or self._snapshot_at_ms is not None:
            return None
        if not self._unsaved:
            return snapshot.mark_current(path) if self.age_s == 0.0 else None
        self._unsaved = False
        kinds, known = {kind: view.buckets for kind, view in self._kinds.items()}, self._last_known
        state = kinds, self._clock.now_ms(), self._guard.identity, known.values, known.since_ms
        try:
            run_blocking(lambda: snapshot.save(path, *state))
        except OSError as error:
            self._unsaved = True
            limited.warning("snapshot=%s: cannot be written, will be tried again: %s", path, error)

"""What every configuration store can do. Siblings: memory_store, file_store, zookeeper_store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Value = Mapping[str, Any]
ConfigVersion = dict[str, int]  # kind -> number that grows with every change of that kind


@dataclass(frozen=True)
class EntryKind:
    """How entries of one kind are laid out.

    Attributes:
        buckets: entries are hashed into so many buckets. More: a change rewrites less; fewer: a full load is quicker.
            Fixed when a store's first entry of the kind is written; a later change here does not touch old stores.
        followed: proxies keep it in memory and watch it.
        bucket_entries_max: when set, a full bucket drops its first names; for journals whose names begin with the time.
    """

    buckets: int
    followed: bool = True
    bucket_entries_max: int | None = None


KINDS: Mapping[str, EntryKind] = {
    "topic": EntryKind(256),
    "family": EntryKind(16),
    "group": EntryKind(64),
    "application": EntryKind(64),
    "setting": EntryKind(16),
    "broker_group": EntryKind(1),  # one bucket, so that whoever reads sees all groups as of one moment
    "audit": EntryKind(64, followed=False, bucket_entries_max=500),
}
FOLLOWED = tuple(name for name, kind in KINDS.items() if kind.followed)


class Versioned(NamedTuple):
    """An entry as stored. Versions are ≥ 1, grow with each change and are never reused, not even after a delete."""

    value: dict[str, Any]
    version: int


class Change(NamedTuple):
    """One entry to write, `value` None to delete it. `expected_version` 0: it must not exist yet."""

    name: str
    value: Value | None
    expected_version: int


class Applied(NamedTuple):
    """What a living process last reported."""

    version: ConfigVersion
    pid: int
    at_ms: int


class ConfigStore(ABC):
    """Versioned JSON dicts by kind and name; every change is a compare-and-set.

    All methods may block for I/O, co-operatively where gevent has patched the process. All may raise StoreUnavailable.
    One store object may be used from several threads or greenlets.
    """

    @abstractmethod
    def get(self, kind: str, name: str) -> Versioned | None: ...

    @abstractmethod
    def entries(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[tuple[str, Versioned]]:
        """The first `limit` entries with names that begin with `prefix` and sort behind `after`, by name."""

    def names(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
        """Like `entries`, names only: the last one is the next page's `after`."""
        return [name for name, _ in self.entries(kind, prefix, after, limit)]

    @abstractmethod
    def count(self, kind: str, prefix: str = "") -> int:
        """How many names begin with `prefix`. Reads every bucket, like `entries`, but parses no value."""

    @abstractmethod
    def taken(self, kind: str, names: Iterable[str]) -> list[str]:
        """Those of `names` that exist, in the order given."""

    @abstractmethod
    def put_many(self, kind: str, changes: Iterable[Change]) -> list[int]:
        """Make all changes and return their new versions in order (of a deletion: the version at which it went).

        Versions are checked before anything is written: a VersionConflict or InvalidEntry then means that nothing was. What fits
        one transaction (the file store: everything; ZooKeeper: about 1 MB of buckets, some 30,000 topics) is atomic; a
        larger set is not, and a conflict or outage in its middle leaves the first part written.

        Raises:
            VersionConflict, InvalidEntry, BucketFull, UncertainWrite
        """

    def put(self, kind: str, name: str, value: Value, expected_version: int) -> int:
        """Write one entry durably and return its new version; `expected_version` 0: it must not exist."""
        return self.put_many(kind, [Change(name, value, expected_version)])[0]

    def delete(self, kind: str, name: str, expected_version: int) -> None:
        if expected_version < 1:
            raise ValueError("deleting needs the version that was read")
        self.put_many(kind, [Change(name, None, expected_version)])

    @abstractmethod
    def index(self, kind: str) -> Sequence[int]:
        """The revision of each bucket of the kind, as of now; 0 for one that was never written. Does not read the buckets."""

    @abstractmethod
    def buckets(self, kind: str, numbers: Sequence[int]) -> list[bytes]:
        """These buckets as stored (see buckets.py), each at the revision that `index` gave or newer; b"" if never written."""

    def version(self, kinds: Sequence[str] = FOLLOWED) -> ConfigVersion:
        return {kind: sum(self.index(kind)) for kind in kinds}

    @abstractmethod
    def watch(self, callback: Callable[[str], None]) -> None:
        """Call `callback(kind)` within a second of a change by any process, and for every kind when contact to the store returns.

        Several changes may come as one call. It runs in the store's own thread or greenlet, never inside the call that
        made the change (except in the memory store), and may use the store.
        """

    @property
    @abstractmethod
    def unavailable_since_ms(self) -> int | None:
        """Unix time since when there is no contact; None while there is."""

    @abstractmethod
    def report_applied(self, process: str, version: ConfigVersion) -> None:
        """Say that `process` now works by `version`. The report vanishes with this store's process."""

    @abstractmethod
    def applied(self) -> dict[str, Applied]:
        """The latest report of every process that still lives."""

    @abstractmethod
    def claim(self, name: str) -> bool:
        """Hold this name among all processes of the store, until `release` or the process's end; False: another has it.

        It may be lost before that, with the store's session: ask `holds` before each use. May raise StoreUnavailable.
        """

    @abstractmethod
    def holds(self, name: str) -> bool:
        """Whether the name was claimed by this store object and is still held, as far as can be told without asking anybody."""

    @abstractmethod
    def release(self, name: str) -> None:
        """Let go of a name; one that is not held is no error."""

    @abstractmethod
    def close(self) -> None: ...

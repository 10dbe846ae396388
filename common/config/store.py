"""The interface of every configuration store. Siblings: memory_store, file_store, zookeeper_store."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from common.config.errors import InvalidEntry
from common.config.identity import StoreIdentity

Value = Mapping[str, Any]
ConfigVersion = dict[str, int]  # kind -> number that grows with every change of that kind; and GENERATION
GENERATION = "generation"
"""In a version: that of the store's identity. The numbers of the kinds may begin again in a new one."""

SENT = "sent"
"""In a producer proxy's report, beside the kinds: the topics' number such that every send that began before it has its
outcome."""
COPIED = "copied"
"""In a producer proxy's report, too: the topics' number such that everything that was sent before it, to topics that it
fences, is on both of their sides."""
JOURNAL = "journal"
"""In a producer proxy's report, too: 1 while its repair journal takes intents."""


@dataclass(frozen=True)
class EntryKind:
    """Layout of the entries of one kind.

    Attributes:
        buckets: number of buckets that entries are hashed into. With more a change rewrites less; with fewer a full
            load is faster. Fixed when a store's first entry of the kind is written; a later change here does not affect
            old stores.
        followed: proxies keep the kind in memory and watch it.
        bucket_entries_max: a full bucket drops its first names; for journals, whose names begin with the time.
        written_by_proxies: also by a process that may only read the other kinds.
    """

    buckets: int
    followed: bool = True
    bucket_entries_max: int | None = None
    written_by_proxies: bool = False


KINDS: Mapping[str, EntryKind] = {
    "topic": EntryKind(256),
    "family": EntryKind(16),
    "group": EntryKind(64),
    "application": EntryKind(64),
    "setting": EntryKind(16),
    "broker_group": EntryKind(1),  # one bucket, so that a reader sees all groups as of one time
    "kafka": EntryKind(1),
    "copy_in": EntryKind(16),
    "copy_out": EntryKind(16),
    "shared_read": EntryKind(16),
    "engine": EntryKind(1, followed=False),  # see engine_records.py
    "migration": EntryKind(4, followed=False),  # plans and their states
    "migration_topic": EntryKind(16, followed=False),  # the plan of a topic: at most one
    "journal": EntryKind(
        4, followed=False, written_by_proxies=True
    ),  # repair journals of dual writes, and what they hold
    "ended_fence": EntryKind(4, written_by_proxies=True),  # of topics, see ended_fences.py
    "migration_check": EntryKind(4, followed=False),  # the last comparison of a plan's topics
    "audit": EntryKind(64, followed=False, bucket_entries_max=500),
}
FOLLOWED = tuple(name for name, kind in KINDS.items() if kind.followed)


class Versioned(NamedTuple):
    """An entry as stored. Versions are ≥ 1, grow with each change and are never reused, not even after a delete."""

    value: dict[str, Any]
    version: int


class Change(NamedTuple):
    """One entry to write; `value` None deletes it. `expected_version` 0: it must not exist yet."""

    name: str
    value: Value | None
    expected_version: int


class Applied(NamedTuple):
    """The last report of a running process."""

    version: ConfigVersion
    pid: int
    at_ms: int


class StoreUser(NamedTuple):
    """A user of the store.

    Attributes:
        rights: "writes" or "reads".
        digest: of its password, as far as this process may see it: it tells two passwords of one name apart.
    """

    user: str
    rights: str
    digest: str


def parse_report(data: bytes, pid: int | None = None) -> Applied:
    """A report as a store keeps it. Raises ValueError."""
    try:
        value = json.loads(data)
        version = {str(kind): int(number) for kind, number in value["version"].items()}
        return Applied(version, int(value["pid"] if pid is None else pid), int(value["at_ms"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a report: {error!r}") from error


class ConfigStore(ABC):
    """Versioned JSON dicts by kind and name; every change is a compare-and-set.

    All methods may block for I/O, co-operatively where gevent has patched the process. All may raise StoreUnavailable.
    One store object may be used from several threads or greenlets.

    Attributes:
        keeps_members: whether it expects processes that have reported once to do so, see `members`.
    """

    keeps_members = False

    @abstractmethod
    def identity(self) -> StoreIdentity | None:
        """The store's identity; None: it has none, so it is new, or it has lost its content.

        May raise StoreDamaged.
        """

    @abstractmethod
    def set_identity(self, identity: StoreIdentity) -> None:
        """Replace the identity durably: for an operator who restores the store or accepts its state."""

    @abstractmethod
    def get(self, kind: str, name: str) -> Versioned | None: ...

    @abstractmethod
    def entries(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[tuple[str, Versioned]]:
        """The first `limit` entries by name whose names begin with `prefix` and sort after `after`."""

    def names(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
        """Like `entries`, names only: the last one is the next page's `after`."""
        return [name for name, _ in self.entries(kind, prefix, after, limit)]

    @abstractmethod
    def count(self, kind: str, prefix: str = "") -> int:
        """The number of names that begin with `prefix`. It reads every bucket, like `entries`, but parses no value."""

    @abstractmethod
    def taken(self, kind: str, names: Iterable[str]) -> list[str]:
        """The existing ones of `names`, in the given order."""

    @abstractmethod
    def put_many(
        self, kind: str, changes: Iterable[Change], seen: Mapping[str, Sequence[int]] | None = None
    ) -> list[int]:
        """Make all changes and return their new versions in order (for a deletion: its version).

        Versions are checked before the first write: after a VersionConflict or InvalidEntry nothing was written. A set
        that fits one transaction is atomic (file store: any set; ZooKeeper: about 1 MB of buckets, some 30,000 topics).
        A larger set is not: a conflict or outage in its middle leaves the first part written.

        Args:
            seen: indexes of other kinds, as `index` has returned them. Each transaction fails if one has changed.
        Raises:
            VersionConflict, InvalidEntry, BucketFull, UncertainWrite
        """

    def put(self, kind: str, name: str, value: Value, expected_version: int) -> int:
        """Write one entry durably and return its new version. `expected_version` 0: it must not exist."""
        return self.put_many(kind, [Change(name, value, expected_version)])[0]

    def delete(self, kind: str, name: str, expected_version: int) -> None:
        if expected_version < 1:
            raise ValueError("a deletion needs the version that was read")
        self.put_many(kind, [Change(name, None, expected_version)])

    @abstractmethod
    def index(self, kind: str) -> Sequence[int]:
        """The current revision of each bucket of the kind; 0: never written. It does not read the buckets."""

    @abstractmethod
    def buckets(self, kind: str, numbers: Sequence[int]) -> list[bytes]:
        """These buckets as stored (see buckets.py), each at the revision of `index` or newer; b"" if never written."""

    @abstractmethod
    def found_buckets(self, kind: str) -> dict[int, bytes]:
        """Every bucket of the kind by its number, whatever the index says: for checks and repairs."""

    @abstractmethod
    def leave_out(self, kind: str) -> list[int]:
        """Take buckets that are missing out of the index, and return their numbers: for repairs.

        Processes that have had them see that the store is older than what they know, and keep their last state.
        """

    def users(self) -> list[StoreUser]:
        """The users that may change or read the store. Raises InvalidEntry: it names none."""
        raise InvalidEntry("users are named in ZooKeeper only: a directory has owner, group and modes")

    def set_users(self, writers: Collection[str] | None, readers: Collection[str] | None) -> list[StoreUser]:
        """Give all of the store to these users, now and for entries to come; returns all users.

        Args:
            writers, readers: `user:password` of all that may change it, of all that may only read it and write what
                proxies write; None: as they are.
        Raises:
            InvalidEntry, AccessDenied
        """
        return self.users()

    @property
    def access_fault(self) -> str:
        """A sentence when this process may do more or less with the store than it should; else "". Does not block."""
        return ""

    def wrong_access(self) -> list[tuple[str, str]]:
        """Parts of the store with other rights than they should have, although it has users; each with what is wrong."""
        return []

    def mend_access(self) -> list[tuple[str, str]]:
        """Give these parts their rights; returns them as before: for repairs."""
        return []

    @abstractmethod
    def set_index(self, kind: str, revisions: Sequence[int]) -> None:
        """Replace the index of a kind whose own is lost, durably: for repairs."""

    def version(self, kinds: Sequence[str] = FOLLOWED) -> ConfigVersion:
        identity = self.identity()
        return {kind: sum(self.index(kind)) for kind in kinds} | {GENERATION: identity.generation if identity else 0}

    @abstractmethod
    def watch(self, callback: Callable[[str], None]) -> None:
        """Call `callback(kind)` within a second of a change by any process, and for every kind when contact to the
        store returns.

        Several changes may cause one call. The callback runs in the store's own thread or greenlet and may use the
        store. Except in the memory store, it never runs inside the call that made the change.
        """

    @property
    @abstractmethod
    def unavailable_since_ms(self) -> int | None:
        """Unix time since which there is no contact; None while there is contact."""

    @abstractmethod
    def report_applied(self, process: str, version: ConfigVersion) -> None:
        """Report that `process` now uses `version`, also to a store that has lost its content with all reports.

        The report ends with this store's process.
        """

    @abstractmethod
    def applied(self) -> dict[str, Applied]:
        """The latest report of every running process that has contact."""

    def members(self) -> dict[str, Applied]:
        """The last report of every process that is expected to report: from its first one until it leaves.

        Empty without `keeps_members`.
        """
        return {}

    def leave(self, process: str) -> None:  # noqa: B027
        """End the reports of a process of this store object that stops in order."""

    def damaged_reports(self) -> dict[str, str]:
        """Reports that cannot be read, each with the reason. `applied` leaves them out."""
        return {}

    @abstractmethod
    def forget(self, process: str) -> None:
        """Remove the reports of a process, of one that cannot be read or will not come back: it is expected no more."""

    @abstractmethod
    def claim(self, name: str, *, by_proxy: bool = False) -> bool:
        """Claim a name among all processes of the store, until `release` or the process's end; False: another process
        has it.

        The claim may be lost earlier, with the store's session: ask `holds` before each use. May raise
        StoreUnavailable.

        Args:
            by_proxy: only proxies claim the name, always so: they may not take the others.
        """

    @abstractmethod
    def holds(self, name: str) -> bool:
        """Whether this store object claimed the name and still holds it, as far as is known without a request."""

    @abstractmethod
    def release(self, name: str) -> None:
        """Release a name; a name that is not held is ignored."""

    @abstractmethod
    def close(self) -> None: ...

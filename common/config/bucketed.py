"""Base of all stores: compare-and-set on entries, built on compare-and-set on a kind's index.

A store only reads an index, reads buckets, and commits new buckets together with their index.
"""

import random
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

from common.config import buckets as layout
from common.config.errors import ConfigError, InvalidEntry, StoreUnavailable, VersionConflict
from common.config.identity import StoreIdentity, new_identity
from common.config.store import KINDS, Change, ConfigStore, Versioned

RACE_DEADLINE_S = 20.0
INDEX_MISSING = "{}: the index is missing, but there are buckets: make it again with `penstock config repair`"
BUCKET_MISSING = (
    "{}: the bucket is missing, but the index names it: take it out of the index with `penstock config repair`, and "
    "restore its entries with `penstock config apply`"
)

Seen = Mapping[str, Sequence[int]]
"""Indexes of other kinds that must not have changed at a commit."""


class LostRace(ConfigError):
    """Another writer committed first; nothing was written. Never leaves this package."""


class Index(NamedTuple):
    revisions: tuple[int, ...]
    token: Any  # the store compares it at the commit


class BucketPlan(NamedTuple):
    """The new state of one bucket."""

    number: int
    payload: bytes
    revision: int
    names: tuple[str, ...]


class BucketedStore(ConfigStore):
    transaction_bytes_max: int | None = None  # maximum bytes of buckets in one commit; None: no bound

    def __init__(self) -> None:
        self._payloads: dict[tuple[str, int], bytes] = {}
        self._seen_identity: StoreIdentity | None = None

    @abstractmethod
    def _read_identity(self) -> StoreIdentity | None: ...

    @abstractmethod
    def _create_identity(self, identity: StoreIdentity) -> None:
        """Write it durably unless there is one."""

    @abstractmethod
    def _replace_identity(self, identity: StoreIdentity) -> None: ...

    @abstractmethod
    def _read_index(self, kind: str) -> Index: ...

    @abstractmethod
    def _read_buckets(self, kind: str, numbers: Sequence[int], index: Index) -> list[bytes]:
        """The buckets at the index's revisions or newer."""

    @abstractmethod
    def _commit(self, kind: str, payloads: dict[int, bytes], revisions: tuple[int, ...], token: Any, seen: Seen) -> Any:
        """Replace buckets and index durably in one step and return the next token.

        Raises:
            LostRace: the index has changed since `token`.
            VersionConflict: an index of `seen` has changed. Nothing was written.
        """

    def _writing(self, kind: str) -> AbstractContextManager:
        """A context around a read-modify-write. Stores whose commit does not compare take a lock here."""
        return nullcontext()

    def identity(self) -> StoreIdentity | None:
        found = self._read_identity()
        if found != self._seen_identity:
            self._payloads.clear()  # of another state, whose revisions may repeat
            self._seen_identity = found
        return found

    def set_identity(self, identity: StoreIdentity) -> None:
        self._replace_identity(identity)
        self.identity()

    def get(self, kind: str, name: str) -> Versioned | None:
        layout.check_name(kind, name)
        index = self._read_index(kind)
        number = layout.bucket_of(name, len(index.revisions))
        return layout.find(self._text(kind, number, index), name)

    def entries(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[tuple[str, Versioned]]:
        found = {name: line for name, line in self._lines(kind) if name.startswith(prefix) and name > after}
        return [(name, layout.parse_line(found[name])) for name in sorted(found)[:limit]]

    def count(self, kind: str, prefix: str = "") -> int:
        return sum(name.startswith(prefix) for name, _ in self._lines(kind))

    def taken(self, kind: str, names: Iterable[str]) -> list[str]:
        index = self._read_index(kind)
        asked = [(layout.bucket_of(name, len(index.revisions)), name) for name in names]
        numbers = sorted({number for number, _ in asked})
        payloads = zip(numbers, self._cached(kind, numbers, index), strict=True)
        lines = {n: layout.lines_of(layout.unpack(payload, f"{kind} bucket {n}")) for n, payload in payloads}
        return [name for number, name in asked if name in lines[number]]

    def _lines(self, kind: str) -> Iterator[tuple[str, bytes]]:
        index = self._read_index(kind)
        for number, payload in enumerate(self._cached(kind, range(len(index.revisions)), index)):
            yield from layout.lines_of(layout.unpack(payload, f"{kind} bucket {number}")).items()

    def index(self, kind: str) -> Sequence[int]:
        return self._read_index(kind).revisions

    def buckets(self, kind: str, numbers: Sequence[int]) -> list[bytes]:
        return self._cached(kind, numbers, self._read_index(kind))

    def put_many(self, kind: str, changes: Iterable[Change], seen: Seen | None = None) -> list[int]:
        wanted = list(changes)
        left = {change.name: change for change in wanted}
        if len(left) != len(wanted):
            raise InvalidEntry(f"{kind}: a name is twice in one change: name each entry once")
        for name in left:
            layout.check_name(kind, name)
        versions: dict[str, int] = {}
        deadline = time.monotonic() + RACE_DEADLINE_S
        if self._seen_identity is None and self.identity() is None:
            self._create_identity(new_identity())
        with self._writing(kind):
            while left:
                try:
                    self._put_round(kind, left, versions, seen or {})
                except LostRace:
                    if time.monotonic() > deadline:
                        raise StoreUnavailable(
                            f"{kind}: not written, other writers were faster for {RACE_DEADLINE_S:.0f} s: try again later"
                        ) from None
                    time.sleep(random.uniform(0.001, 0.02))  # spreads writers that lost the same race
        return [versions[change.name] for change in wanted]

    def fill(self, kind: str) -> None:
        """Write the buckets of the kind that were never written, without entries."""
        while True:
            index = self._read_index(kind)
            empty = [number for number, revision in enumerate(index.revisions) if not revision]
            if not empty:
                return
            payloads = {number: layout.pack({}, 1, f"{kind} bucket {number}") for number in empty}
            with self._writing(kind), suppress(LostRace):
                self._commit(kind, payloads, tuple(max(each, 1) for each in index.revisions), index.token, {})

    def leave_out(self, kind: str) -> list[int]:
        while True:
            with self._writing(kind), suppress(LostRace):
                index = self._read_index(kind)
                if missing := self._missing(kind, index):
                    left = tuple(0 if number in missing else each for number, each in enumerate(index.revisions))
                    self._commit(kind, {}, left, index.token, {})
                return missing

    def _missing(self, kind: str, index: Index) -> list[int]:
        """Numbers of the buckets that the index names, and that are not there."""
        found = self.bucket_numbers(kind)
        return [number for number, revision in enumerate(index.revisions) if revision and number not in found]

    def bucket_numbers(self, kind: str) -> set[int]:
        """Of the buckets that are there, also of those that this user may not read."""
        return set(self.found_buckets(kind))

    def _put_round(self, kind: str, left: dict[str, Change], versions: dict[str, int], seen: Seen) -> None:
        """Commit groups of buckets until another writer interferes, moving names from `left` to `versions`."""
        index = self._read_index(kind)
        for group in self._groups(self._plan(kind, left, index)):
            revisions = list(index.revisions)
            for plan in group:
                revisions[plan.number] = plan.revision
            payloads = {plan.number: plan.payload for plan in group}
            token = self._commit(kind, payloads, tuple(revisions), index.token, seen)
            index = Index(tuple(revisions), token)
            for plan in group:
                self._payloads[kind, plan.number] = plan.payload
                for name in plan.names:
                    versions[name] = plan.revision
                    del left[name]

    def _plan(self, kind: str, left: dict[str, Change], index: Index) -> list[BucketPlan]:
        """New payloads of all affected buckets. Every expected version is checked here, before the first commit."""
        by_bucket: dict[int, list[Change]] = {}
        for change in left.values():
            by_bucket.setdefault(layout.bucket_of(change.name, len(index.revisions)), []).append(change)
        payloads = self._cached(kind, list(by_bucket), index)
        return [
            _rewrite(kind, number, payload, changes)
            for (number, changes), payload in zip(by_bucket.items(), payloads, strict=True)
        ]

    def _groups(self, plans: list[BucketPlan]) -> Iterator[list[BucketPlan]]:
        group: list[BucketPlan] = []
        size = 0
        for plan in plans:
            if group and self.transaction_bytes_max and size + len(plan.payload) > self.transaction_bytes_max:
                yield group
                group, size = [], 0
            group.append(plan)
            size += len(plan.payload)
        if group:
            yield group

    def _cached(self, kind: str, numbers: Sequence[int], index: Index) -> list[bytes]:
        """The buckets, from memory where the index shows that they have not changed."""
        result = {number: self._payloads.get((kind, number), b"") for number in numbers}
        stale = [number for number in numbers if layout.revision_of(result[number]) != index.revisions[number]]
        for number, payload in zip(stale, self._read_buckets(kind, stale, index) if stale else [], strict=True):
            result[number] = self._payloads[kind, number] = payload
        return [result[number] for number in numbers]

    def _text(self, kind: str, number: int, index: Index) -> bytes:
        return layout.unpack(self._cached(kind, [number], index)[0], f"{kind} bucket {number}")


def check_seen(kind: str, wanted: Sequence[int], found: Sequence[int]) -> None:
    """Raises VersionConflict."""
    if tuple(wanted) != tuple(found):
        raise VersionConflict(kind, "index", sum(wanted), sum(found))


def _rewrite(kind: str, number: int, payload: bytes, changes: list[Change]) -> BucketPlan:
    subject = f"{kind} bucket {number}"
    lines = layout.all_lines(layout.unpack(payload, subject))
    revision = layout.revision_of(payload) + 1
    for change in changes:
        found = layout.version_of_line(lines[change.name]) if change.name in lines else 0
        if found != change.expected_version:
            raise VersionConflict(kind, change.name, change.expected_version, found)
        if change.value is not None:
            lines[change.name] = layout.entry_line(change.name, revision, change.value)
            lines.pop(layout.DELETED + change.name, None)
        elif lines.pop(change.name, None) is not None and KINDS[kind].followed:
            lines[layout.DELETED + change.name] = layout.deletion_line(change.name, revision)
    _drop_old_deletions(lines)
    entries_max = KINDS[kind].bucket_entries_max
    if entries_max is not None:
        for name in sorted(lines)[:-entries_max]:
            del lines[name]
    return BucketPlan(number, layout.pack(lines, revision, subject), revision, tuple(change.name for change in changes))


def _drop_old_deletions(lines: dict[str, bytes]) -> None:
    """Keep the newest records of deletions, so that names that come and go do not fill a bucket."""
    deleted = [name for name in lines if name.startswith(layout.DELETED)]
    if len(deleted) > layout.DELETIONS_MAX:
        deleted.sort(key=lambda name: layout.version_of_line(lines[name]))
        for name in deleted[: -layout.DELETIONS_MAX]:
            del lines[name]

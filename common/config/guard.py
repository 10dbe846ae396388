"""Tells a store that has lost its content from one that was changed.

A store is only followed while it is the one that a process knows, and not older. Three facts decide, because each
commit of an undamaged store only adds to them: its identity, the revision of each bucket, and the record of each
deletion. `docs/design/0025-configuration-that-is-lost.md`.
"""

from collections.abc import Iterable

from common.config import buckets as layout
from common.config.errors import StoreDamaged
from common.config.identity import StoreIdentity
from common.config.last_known import BucketChange
from common.config.snapshot import Buckets

LOST_MIN = 8  # fewer entries without a record of their deletion may be an older command's deletions
REMEDY = "it is damaged, not empty: restore it with `penstock config apply`, or accept it with `penstock config repair`"


class StoreGuard:
    """Knowledge of one process about its store.

    Attributes:
        identity: of the store whose content was taken last; None: of none yet.
    """

    def __init__(self) -> None:
        self.identity: StoreIdentity | None = None
        self._taken: dict[str, StoreIdentity | None] = {}

    def restore(self, identity: StoreIdentity | None, kinds: list[str]) -> None:
        """Begin with what a snapshot holds."""
        self.identity = identity
        self._taken = dict.fromkeys(kinds, identity)

    def is_renewed(self, kind: str, found: StoreIdentity | None) -> bool:
        """Whether nothing of this kind that was read before counts: an operator has accepted the store as it is."""
        known = self._taken.get(kind)
        return found is not None and found.generation > (0 if known is None else known.generation)

    @property
    def generation(self) -> int:
        """The lowest in which some kind was taken."""
        return min((each.generation if each else 0 for each in self._taken.values()), default=0)

    def outdated(self) -> list[str]:
        """Kinds that were taken in an earlier generation than the last one."""
        now = self.identity.generation if self.identity else 0
        return [kind for kind, each in self._taken.items() if (each.generation if each else 0) < now]

    def check_identity(self, found: StoreIdentity | None) -> None:
        """Raises StoreDamaged."""
        known = self.identity
        if known is None or found == known:
            return
        if found is None:
            raise StoreDamaged(f"configuration: the cluster id {known.cluster} is missing: {REMEDY}")
        if found.cluster != known.cluster:
            raise StoreDamaged(
                f"configuration: the cluster id is {found.cluster}, but this process belongs to {known.cluster}: "
                f"it is another cluster's, or was made again: {REMEDY}"
            )
        if found.generation < known.generation:
            raise StoreDamaged(
                f"configuration: generation {found.generation} is older than {known.generation}, which was in use: {REMEDY}"
            )

    def check_revisions(self, kind: str, old: Buckets, new: tuple[int, ...]) -> None:
        """Check an index against the one taken before. Raises StoreDamaged."""
        if not any(old.revisions):
            return
        if len(new) != len(old.revisions):
            raise StoreDamaged(f"configuration kind={kind}: {len(new)} buckets, were {len(old.revisions)}: {REMEDY}")
        older = sum(now < before for before, now in zip(old.revisions, new, strict=True))
        if older:
            state = (
                "all of it is gone" if not any(new) else f"{older} of {len(new)} buckets are older than those in use"
            )
            raise StoreDamaged(f"configuration kind={kind}: {state}: {REMEDY}")

    def check_entries(self, kind: str, changed: Iterable[BucketChange]) -> None:
        """Check that entries are gone by deletions, not by damage. Raises StoreDamaged."""
        lost = kept = 0
        for bucket in changed:
            gone = bucket.before.keys() - bucket.after.keys()
            lost += sum(not layout.is_deleted(bucket.text, name) for name in gone)
            kept += len(bucket.after)
        if lost >= LOST_MIN and lost > kept:
            raise StoreDamaged(
                f"configuration kind={kind}: {lost} of {lost + kept} entries are gone without a record of their "
                f"deletion: {REMEDY}"
            )

    def take(self, kind: str, found: StoreIdentity | None) -> None:
        """The kind's content was taken from the store of this identity."""
        self._taken[kind] = found
        self.identity = found or self.identity

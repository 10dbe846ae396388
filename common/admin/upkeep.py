"""Checks of a whole store, and repairs that lose nothing."""

from typing import NamedTuple

from common.admin import audit
from common.admin.administrator import Administrator
from common.config import buckets as layout
from common.config.errors import AccessDenied, InvalidDefinition, StoreDamaged
from common.config.identity import StoreIdentity, new_identity
from common.config.kinds import DEFINITIONS
from common.config.store import KINDS, ConfigStore

UNREADABLE_MAX = 20  # shown of one kind
READINGS = 5  # of one kind, each of which has to find a fault
LEAVES_OUT = "takes it out of the index; restore its entries with `penstock config apply`"


class StoreFault(NamedTuple):
    """A fault of a store.

    Attributes:
        subject: the kind, bucket or entry.
        repair: what `repair` does about it; empty: it can do nothing.
    """

    subject: str
    problem: str
    repair: str = ""


def verify(store: ConfigStore) -> list[StoreFault]:
    """All faults. Reads everything."""
    found: list[StoreFault] = []
    try:
        identity = store.identity()
        if identity is None and any(store.found_buckets(kind) for kind in KINDS):
            found.append(StoreFault("cluster id", "is missing, but there are entries", "makes one: --accept-empty"))
    except StoreDamaged as error:
        found.append(StoreFault("cluster id", str(error), "makes one: --accept-empty"))
    for kind in KINDS:
        found += _faults_of(store, kind)
    found += [StoreFault(path, problem, "gives it the list of its place") for path, problem in store.wrong_access()]
    found += [StoreFault(f"applied/{name}", problem, "removes it") for name, problem in store.damaged_reports().items()]
    return found


def _faults_of(store: ConfigStore, kind: str) -> list[StoreFault]:
    """The faults that each of several readings finds: what only one finds may be a change by another process."""
    found = _faults_now(store, kind)
    for _ in range(READINGS - 1):
        if not found:
            break
        again = _faults_now(store, kind)
        found = [each for each in found if each in again]
    return found


def _faults_now(store: ConfigStore, kind: str) -> list[StoreFault]:
    try:
        index, problem = _index_of(store, kind)
        payloads = store.found_buckets(kind)
    except AccessDenied as error:
        return [StoreFault(kind, str(error))]
    found = [StoreFault(kind, problem, "makes the index again from the buckets")] if problem else []
    for number in sorted(payloads.keys() | {number for number, revision in enumerate(index) if revision}):
        found += _bucket_faults(kind, number, payloads.get(number, b""), index)
    return found


def _index_of(store: ConfigStore, kind: str) -> tuple[list[int], str]:
    """The index, and what is wrong with it."""
    try:
        return list(store.index(kind)), ""
    except StoreDamaged as error:
        return [0] * KINDS[kind].buckets, str(error)


def _bucket_faults(kind: str, number: int, payload: bytes, index: list[int]) -> list[StoreFault]:
    subject = f"{kind} bucket {number}"
    try:
        lines = layout.lines_of(layout.unpack(payload, subject))
    except StoreDamaged as error:
        return [StoreFault(subject, str(error))]
    revision = index[number] if number < len(index) else 0
    found: list[StoreFault] = []
    if not payload and revision:
        found.append(StoreFault(subject, f"is missing, but the index names its revision {revision}", LEAVES_OUT))
    elif any(index) and layout.revision_of(payload) < revision:
        found.append(StoreFault(subject, f"is at revision {layout.revision_of(payload)}, the index names {revision}"))
    for name, line in lines.items():
        try:
            if kind in DEFINITIONS:
                DEFINITIONS[kind].from_value(name, layout.parse_line(line).value)
        except (InvalidDefinition, ValueError, TypeError) as error:
            found.append(StoreFault(f"{kind} {name}", f"this version cannot read it: {error}"))
    return found[:UNREADABLE_MAX]


def repair(admin: Administrator) -> list[StoreFault]:
    """Make lost indexes again from their buckets, leave lost buckets out of them, remove damaged reports, mend access lists.

    Returns what was repaired.
    """
    store = admin.store
    done = [StoreFault(path, problem, "gave it the list of its place") for path, problem in store.mend_access()]
    for kind in KINDS:
        try:
            store.index(kind)
        except StoreDamaged as error:
            revisions = [0] * KINDS[kind].buckets
            for number, payload in store.found_buckets(kind).items():
                layout.unpack(payload, f"{kind} bucket {number}")  # a damaged bucket ends the repair
                revisions += [0] * (number + 1 - len(revisions))
                revisions[number] = layout.revision_of(payload)
            store.set_index(kind, revisions)
            done.append(StoreFault(kind, str(error), "made the index again from the buckets"))
        for number in store.leave_out(kind):
            done.append(StoreFault(f"{kind} bucket {number}", "was missing", f"took{LEAVES_OUT.removeprefix('takes')}"))
    for name, problem in store.damaged_reports().items():
        store.forget(name)
        done.append(StoreFault(f"applied/{name}", problem, "removed it"))
    if done:
        _record(admin, "repair", [each.subject for each in done])
    return done


def accept(admin: Administrator, cluster: str | None) -> StoreIdentity:
    """Accept the store as it is: every process of its cluster follows it from then on, even where it is empty.

    Args:
        cluster: the cluster id, for a store that has lost it.
    """
    try:
        found = admin.store.identity()
    except StoreDamaged:
        found = None
    if cluster is None:
        cluster = (found or new_identity()).cluster
    made = StoreIdentity(cluster, max(admin.clock.now_ms(), 1 + (found.generation if found else 0)))
    admin.store.set_identity(made)
    _record(admin, "accept", [cluster])
    return made


def _record(admin: Administrator, action: str, names: list[str]) -> None:
    audit.record(admin.store, admin.clock, admin.who, action, "configuration", names, None, None)

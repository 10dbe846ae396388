"""Edges of a broker group's state machine, as its records took them: docs/design/0031-switch-over.md, "Transitions"."""

from collections import Counter
from collections.abc import Iterable

from common.cluster.coordination import VersionedRecord
from common.cluster.group_record import GroupRecord, GroupState

SINGLE, ASYNC, SEMI, SYNC = (
    GroupState.SINGLE_MASTER, GroupState.ASYNC_REPLICATION, GroupState.SEMI_SYNC, GroupState.SYNC_REPLICATION
)  # fmt: skip
FOUNDED = "no record → SINGLE_MASTER"
FOLLOWED = "SINGLE_MASTER → ASYNC_REPLICATION"
UNFOLLOWED = "ASYNC_REPLICATION → SINGLE_MASTER"
BEGAN = "ASYNC_REPLICATION → SEMI_SYNC"
JOINED = "SEMI_SYNC → SYNC_REPLICATION"
FAILED = "SEMI_SYNC → ASYNC_REPLICATION"
MEMBERS = "SYNC_REPLICATION → the same, another member joins or leaves"
ALONE = "SYNC_REPLICATION → SINGLE_MASTER, same master"
PROMOTED = "SYNC_REPLICATION → another master"
RESTARTED = "any → SINGLE_MASTER, all processes were new"
UPKEEP = "the same state, without a change of members"
_BY_STATES = {(SINGLE, ASYNC): FOLLOWED, (ASYNC, SINGLE): UNFOLLOWED, (ASYNC, SEMI): BEGAN, (SEMI, SYNC): JOINED,
              (SEMI, ASYNC): FAILED, (SYNC, SINGLE): ALONE}  # fmt: skip
_EPOCH_STAYS = {FOLLOWED, UNFOLLOWED, BEGAN, JOINED, FAILED, MEMBERS, UPKEEP}


class IllegalEdge(Exception):
    """Two records that must not follow each other."""


def wanted(brokers: int) -> set[str]:
    """The edges that a run has to take."""
    found = {FOUNDED, FOLLOWED, BEGAN, JOINED, FAILED, ALONE, PROMOTED, RESTARTED}
    return found | ({MEMBERS} if brokers > 2 else {UNFOLLOWED})


def edge(old: GroupRecord | None, new: GroupRecord) -> str:
    """The row of the table. Raises IllegalEdge."""
    found = _named(old, new)
    grows = 0 if old is None else new.epoch - old.epoch
    if old is not None and grows != (0 if found in _EPOCH_STAYS else 1):
        raise IllegalEdge(f"{found}: epoch {old.epoch} → {new.epoch}: {old} → {new}")
    return found


def _named(old: GroupRecord | None, new: GroupRecord) -> str:
    if old is None:
        return FOUNDED
    kept = {name for name, number in new.in_sync.items() if old.in_sync.get(name) == number}
    if not kept and new.state is SINGLE and new.in_sync[new.master] != old.joining.get(new.master):
        if new.master not in {**old.in_sync, **old.before}:
            raise IllegalEdge(f"the new master's log may lack something: {old} → {new}")
        return RESTARTED
    if new.master != old.master:
        if old.state is not SYNC or old.in_sync.get(new.master) != new.in_sync[new.master]:
            raise IllegalEdge(f"the new master was not in sync: {old} → {new}")
        return PROMOTED
    if (old.state, new.state) in _BY_STATES:
        return _BY_STATES[old.state, new.state]
    if old.state is not new.state:
        raise IllegalEdge(f"no such transition: {old} → {new}")
    return MEMBERS if (old.in_sync, old.joining) != (new.in_sync, new.joining) else UPKEEP


def count(changes: Iterable[VersionedRecord]) -> tuple[Counter[str], int]:
    """Number of times that each edge was taken, and number of changes that are missing in between."""
    found: Counter[str] = Counter()
    missing, before = 0, None
    for each in changes:
        if before is None and each.version == 1:
            found[edge(None, each.record)] += 1
        elif before is not None and each.version == before.version + 1:
            found[edge(before.record, each.record)] += 1
        elif before is not None:
            missing += each.version - before.version - 1
        before = each
    return found, missing

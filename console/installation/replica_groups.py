"""States of broker groups with replicas, as the coordination has them: for pages, nothing is decided here."""

from typing import NamedTuple

from common.cluster.coordination import Coordination
from common.cluster.opening import open_coordination


class ReplicaState(NamedTuple):
    """One broker group with replicas.

    Attributes:
        state: of the group's record, as `sync replication`; "waiting" without a record.
        reason: why it was moved there, one sentence. at_ms: when; 0: unknown.
        roles: role of each broker: master, in sync, joining, following or away.
        controller: the elected one; empty: none is.
    """

    group: str
    state: str
    epoch: int
    reason: str
    at_ms: int
    roles: dict[str, str]
    controller: str


def replica_states(url: str) -> list[ReplicaState]:
    """All groups with replicas, by name. Raises StoreUnavailable."""
    coordination = open_coordination(url)
    try:
        return [_state(coordination, name) for name in sorted(coordination.groups())]
    finally:
        coordination.close()


def _state(coordination: Coordination, group: str) -> ReplicaState:
    found, present = coordination.record(group), coordination.brokers(group)
    controller = coordination.controller() or ""
    if found is None:
        return ReplicaState(group, "waiting", 0, "", 0, dict.fromkeys(sorted(present), "following"), controller)
    record = found.record
    roles = {}
    for name in sorted({*record.in_sync, *record.joining, *record.before, *present}):
        registered = present.get(name)
        if registered is None:
            roles[name] = "away"
        elif record.in_sync.get(name) == registered.incarnation:
            roles[name] = "master" if name == record.master else "in sync"
        else:
            roles[name] = "joining" if record.joining.get(name) == registered.incarnation else "following"
    return ReplicaState(
        group,
        record.state.value.lower().replace("_", " "),
        record.epoch,
        record.reason,
        record.at_ms,
        roles,
        controller,
    )

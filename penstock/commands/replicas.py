"""Broker groups with replicas as commands show them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.cluster.coordination import Coordination, VersionedRecord
from common.cluster.group_record import Incarnation
from common.cluster.opening import open_coordination
from common.cluster.reports import FollowerReport
from common.config.errors import ConfigError
from controller.reached_group import ReplicaGroup, reached
from penstock.terminal.instance import Instance


@contextmanager
def coordination_of(instance: Instance) -> Iterator[Coordination]:
    coordination = open_coordination(instance.config())
    try:
        yield coordination
    finally:
        coordination.close()


def members(those: Mapping[str, Incarnation]) -> list[str]:
    return sorted(those)


def facts(group: ReplicaGroup) -> dict[str, Any]:
    """The fields of the record."""
    record = group.record
    if record is None:
        return {"broker_group": group.name, "state": None}
    return {
        "broker_group": group.name, "state": record.state.value, "epoch": record.epoch, "version": group.version,
        "master": record.master, "in_sync": members(record.in_sync), "joining": members(record.joining),
        "before": members(record.before), "log_id": record.log_id,
        "floor": f"epoch {record.floor.epoch}, position {record.floor.position}", "reason": record.reason,
    }  # fmt: skip


def broker_rows(group: ReplicaGroup) -> list[dict[str, Any]]:
    """One row per broker, by what it reports."""
    rows = []
    master = group.reports.get(group.record.master) if group.record is not None else None
    for name in group.names:
        registered, report = group.brokers.get(name), group.reports.get(name)
        follower = master.followers.get(name) if master is not None else None
        rows.append({
            "broker": name, "role": group.role(name), "address": registered.address if registered else None,
            "log_epoch": report.log.epoch if report else None, "log_end": report.log.position if report else None,
            "gap_bytes": follower.gap if follower else None, "lag_ms": lag_ms(follower),
            "damaged": report.damaged if report else None,
            "repaired_bytes": report.repaired_bytes if report else None,
            "id_window_mib": report.id_window_mib or None if report else None,
            "answer": (report.cannot_lead or "yes") if report else group.faults.get(name, "not registered"),
        })  # fmt: skip
    return rows


def lag_ms(follower: FollowerReport | None) -> int | None:
    """Time since the first message was stored that a slave lacks; None: unknown, as it is away."""
    if follower is None or (follower.gap and not follower.lacks_since_ms):
        return None
    return max(0, int(time.time() * 1000) - follower.lacks_since_ms) if follower.gap else 0


def states(running: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By group of a running `up`: the fields of its record, and a row per broker under `brokers`; or an `error`."""
    names = running.get("replicas", {})
    if not names:
        return {}
    try:
        key = controller_key(running)
        coordination = open_coordination(running["config"])
    except (OSError, ConfigError) as error:
        return {name: {"error": str(error)} for name in names}
    try:
        return {name: _state(coordination, name, key) for name in names}
    finally:
        coordination.close()


def controller_key(running: Mapping[str, Any]) -> bytes:
    """Of a running `up`; one of an earlier version has the cluster key for all. Raises OSError."""
    return Path(running.get("controller_key", running["cluster_key"])).read_bytes()


def _state(coordination: Coordination, name: str, key: bytes) -> dict[str, Any]:
    try:
        with reached(coordination, name, key) as group:
            return {**facts(group), "brokers": broker_rows(group)}
    except ConfigError as error:
        return {"error": str(error)}


def words(state: Mapping[str, Any]) -> str:
    """One of `states()` in a line."""
    if "error" in state:
        return str(state["error"])
    if state["state"] is None:
        return "no broker leads yet"
    brokers = ", ".join(f"{each['broker']} {_broker_words(each)}" for each in state["brokers"])
    return f"{state['state']}, epoch {state['epoch']}: {brokers}"


def _broker_words(row: Mapping[str, Any]) -> str:
    said = [row["role"]]
    if row["gap_bytes"]:
        said.append(f"{row['gap_bytes']:,} bytes behind")
    if row["damaged"]:
        said.append(f"{row['damaged']} damaged segments")
    if row["role"] != "away" and row["answer"] != "yes":
        said.append(row["answer"])
    return f"({', '.join(said)})"


def change_of(change: VersionedRecord) -> dict[str, Any]:
    """One change of a group's history, without its time."""
    record = change.record
    return {
        "version": change.version, "epoch": record.epoch, "state": record.state.value, "master": record.master,
        "in_sync": members(record.in_sync), "reason": record.reason,
    }  # fmt: skip

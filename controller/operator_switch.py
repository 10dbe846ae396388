"""The switch of a group's master that an operator asks for: `penstock broker switch`, and the console.

It decides by `planned_switch`, has the present master hand over, and writes the record by the same compare-and-set as a
controller.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from common.admin.errors import StateConflict
from common.cluster.coordination import Coordination, VersionedRecord
from common.cluster.group_record import GroupRecord
from common.config.errors import ConfigError, VersionConflict
from controller.planned_switch import forced, left_out, switched
from controller.reached_group import ReplicaGroup, next_report, reached
from engine.link.errors import LinkError

ATTEMPTS = 3
ADOPTED_S_MAX = 3.0
HAND_OVER_S_MAX = 2.0
Warn = Callable[[str], object]


class MasterSwitch(NamedTuple):
    """A switch that was written. `before`: the record that it has replaced; None: there was none."""

    before: GroupRecord | None
    record: GroupRecord


def switch_master(
    coordination: Coordination, name: str, key: bytes, to: str = "", force: bool = False,
    warn: Warn = lambda sentence: None, seen_master: str | None = None,
) -> MasterSwitch:  # fmt: skip
    """Make another broker master of a group, and wait until it has adopted its record.

    Args:
        to: the next master; "": the in-sync slave with most.
        force: also when messages are lost by it; `warn` is told whose.
        warn: called with a sentence about what is written all the same.
        seen_master: the master that the operator has decided on; None: any.
    Raises:
        EntryNotFound: no such group.
        StateConflict: it is not possible now, and nothing was changed.
        VersionConflict: other writers were faster each time. StoreUnavailable, UncertainWrite.
    """
    for attempt in range(ATTEMPTS):
        with reached(coordination, name, key) as group:
            if seen_master is not None and group.record is not None and group.record.master != seen_master:
                raise StateConflict(
                    f"broker group {name}: broker {group.record.master} is the master now, not {seen_master}"
                )
            record = _next_record(group, to, force)
            losses = left_out(group.record, group.views, to) if force else []
            if not force:
                _hand_over(group, warn)
            try:
                written = VersionedRecord(record, coordination.write(name, record, group.version))
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
                continue  # a controller was faster
            _finish(coordination, group, written, losses, warn)
            return MasterSwitch(group.record, record)
    raise AssertionError("the loop returns or raises")


def _next_record(group: ReplicaGroup, to: str, force: bool) -> GroupRecord:
    if force:
        found = forced(group.record, group.views, to)
    elif group.record is None:
        found = "it has no record yet: a controller makes the first one"
    else:
        found = switched(group.version, group.record, group.views, to)
    if isinstance(found, str):
        raise StateConflict(f"broker group {group.name}: {found}")
    return replace(found, at_ms=time.time_ns() // 1_000_000)


def _hand_over(group: ReplicaGroup, warn: Warn) -> None:
    """Have the present master finish its work. One that is not reached can only be replaced as it is: nothing is lost."""
    link = group.links.get(group.record.master) if group.record is not None else None
    if group.record is None or link is None:
        return
    try:
        reason = link.hand_over(group.version, HAND_OVER_S_MAX)
    except (OSError, LinkError) as error:
        warn(f"broker {group.record.master} does not answer: {error}")
        return
    if reason:
        raise StateConflict(f"broker group {group.name}: broker {group.record.master} leads on: {reason}")


def _finish(
    coordination: Coordination, group: ReplicaGroup, written: VersionedRecord, losses: list[str], warn: Warn
) -> None:
    """Push the record that was written, tell of it, and wait until its master has adopted it."""
    for link in group.links.values():
        link.push(written)
    for sentence in losses:
        warn(sentence)
    try:
        coordination.remember(group.name, written)
    except ConfigError as error:
        warn(f"done, but missing in the history: {error}")
    if not _adopts(group, written):
        warn(f"written, but broker {written.record.master} has not adopted it yet")


def _adopts(group: ReplicaGroup, written: VersionedRecord) -> bool:
    link, deadline = group.links.get(written.record.master), time.monotonic() + ADOPTED_S_MAX
    with suppress(OSError, LinkError):
        while link is not None and time.monotonic() < deadline:
            report = next_report(link)  # versions begin again when a record was lost, epochs do not
            if report.log.epoch >= written.record.epoch and report.version >= written.version:
                return True
    return False

"""The next record of a broker group, from its present one and the brokers' reports. Pure: no clock, store or link.

What makes it safe is in docs/design/0031-switch-over.md: a master waits for all members that its record names, and all
changes of membership and master compete for the same version of the record.
"""

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import NamedTuple

from common.cluster.group_record import GroupRecord, GroupState
from common.cluster.reports import BrokerReport, BrokerView, FollowerReport

JOIN_GAP_BYTES = 1 << 20
"""A slave that is at most so far behind may join: the master then waits for it."""
JOIN_S_MAX = 0.5
"""Time in which it has to close the gap. Sends wait meanwhile."""

COPY_S_MIN = 2.0
"""A state that says that a slave copies the log stays so long: one with a full disk comes and goes 50 times a second."""

Brokers = Mapping[str, BrokerView]


class Decision(NamedTuple):
    """
    Attributes:
        record: to be written in place of the present one by compare-and-set; None: leave it.
        sentence: why the group has no master that can acknowledge; "" when it has one, or the record says the reason.
    """

    record: GroupRecord | None = None
    sentence: str = ""


def decide(
    version: int, record: GroupRecord | None, brokers: Brokers, *, age_s: float = 0.0, resting: Container[str] = ()
) -> Decision:
    """
    Args:
        version: of the record in the store.
        brokers: those that are registered, by name.
        age_s: time since the controller has seen this version for the first time.
        resting: slaves that failed to join a short time ago.
    """
    if record is None:
        return _found(brokers)
    if not _living(record, brokers):
        return _older(record, brokers) or _restarted(record, brokers)
    master = _report(record, brokers, record.master)
    if master is None:
        return _promoted(version, record, brokers)
    if master.version != version:  # it has not adopted the record: what it reports is about an earlier one
        return _passed_on(record, brokers, master.cannot_lead) if master.cannot_lead else Decision()
    left = _without_lost(record, master)
    if left is None:
        left = _joined(record, brokers, master, age_s, resting)
    if left is None and record.before and master.is_settled:
        left = replace(record, before={}, reason=f"broker {record.master} has synced its log")
    if left is None and record.log_id != master.log_id:
        left = replace(record, log_id=master.log_id, reason=f"broker {record.master} has made the log")
    return Decision() if left is None else Decision(replace(left, floor=max(record.floor, master.synced)))


def _living(record: GroupRecord, brokers: Brokers) -> list[str]:
    """In-sync members whose process of the record is still registered."""
    return [
        name
        for name, incarnation in record.in_sync.items()
        if name in brokers and brokers[name].incarnation == incarnation
    ]


def _report(record: GroupRecord, brokers: Brokers, name: str) -> BrokerReport | None:
    """The report of an in-sync member; None: it is not reached, or is another process."""
    view = brokers.get(name)
    report = None if view is None else view.report
    return report if report is not None and report.incarnation == record.in_sync[name] else None


# -- a master is missing


def _found(brokers: Brokers) -> Decision:
    """The first record of a group: the broker that has a log, else the first by name."""
    reports = {name: view.report for name, view in sorted(brokers.items()) if view.report is not None}
    if not reports:
        return Decision(sentence="no broker of the group is reached")
    if away := sorted(brokers.keys() - reports.keys()):  # it may be the one that has the log
        return Decision(sentence=f"the group begins when all its registered brokers are reached: not {', '.join(away)}")
    if led := {name: report for name, report in reports.items() if report.log.epoch}:
        name, report = furthest(led)
        return Decision(
            sentence=f"the record of the group is missing, but broker {name} has a log of epoch {report.log.epoch}, and none "
            f"reaches further: make it master with `penstock broker switch --to {name} --force`"
        )
    logs = {report.log_id for report in reports.values()} - {""}
    if len(logs) > 1:
        return Decision(sentence=f"the brokers have different logs ({', '.join(sorted(logs))}): remove all but one")
    begins = [name for name, report in reports.items() if report.log_id] or [
        name for name, report in reports.items() if report.can_begin
    ]
    if not begins:
        return Decision(sentence="no broker has a log, and none was started with --first")
    name = begins[0]
    found = reports[name]
    return Decision(
        GroupRecord(
            1,
            GroupState.SINGLE_MASTER,
            name,
            {name: found.incarnation},
            log_id=found.log_id,
            floor=found.log,
            reason=f"broker {name} is the first of the group",
        )
    )


def _older(record: GroupRecord, brokers: Brokers) -> Decision | None:
    """Nothing, when a broker has followed a later record: what this one says of the set is past."""
    led = {name: report for name, report in _present(brokers).items() if report.log.epoch > record.epoch}
    if not led:
        return None
    name, report = furthest(led)
    return Decision(
        sentence=f"the record of the group (epoch {record.epoch}) is older than the log of broker {name} (epoch "
        f"{report.log.epoch}), and none reaches further: the store was put back from an older copy: make it master with "
        f"`penstock broker switch --to {name} --force`"
    )


def _restarted(record: GroupRecord, brokers: Brokers) -> Decision:
    """The master after all in-sync processes have ended: one that has everything that was acknowledged.

    A complete log of the set has it. Else all logs of the set, and of the one before, have to be there: the one that
    reaches furthest has it, because a lone master has synced its log under its epoch before it confirms anything.
    """
    names = {**record.in_sync, **record.before}
    there: dict[str, BrokerReport] = {}
    older = []
    for name, report in _present(brokers).items():
        if name not in names:
            continue
        if _is_older(record, name, report):
            older.append(name)
        else:
            there[name] = report
    complete = _complete(record, brokers)
    missing = sorted(names.keys() - there.keys())
    if not complete and missing:
        which = f"; the log of {', '.join(sorted(older))} is another or an older copy" if older else ""
        return Decision(
            sentence=f"all brokers have stopped, and no log is known to be complete: waiting for {', '.join(missing)}{which}"
        )
    name, report = furthest(complete or there)
    what = "its log is complete" if complete else "its log reaches furthest of all"
    return Decision(
        _with_master(record, name, {name: report.incarnation}, f"all had stopped; broker {name} is master: {what}")
    )


def _present(brokers: Brokers) -> dict[str, BrokerReport]:
    """Reports of the processes that are registered."""
    return {
        name: view.report
        for name, view in brokers.items()
        if view.report is not None and view.report.incarnation == view.incarnation
    }


def _is_older(record: GroupRecord, name: str, report: BrokerReport) -> bool:
    """Whether the log is another one than the group's, or an older copy."""
    is_other = bool(record.log_id) and report.log_id != record.log_id
    return is_other or (name in record.in_sync and report.log < record.floor)


def _complete(record: GroupRecord, brokers: Brokers) -> dict[str, BrokerReport]:
    """Members of the set, or later processes of them, whose logs are known to have all that was acknowledged.

    Of a later process the one before has ended: a master that waits for that one confirms nothing more.
    """
    return {
        name: report
        for name, report in _present(brokers).items()
        if record.in_sync.get(name) in report.continues and not _is_older(record, name, report)
    }


def _with_master(record: GroupRecord, name: str, in_sync: dict[str, int], reason: str) -> GroupRecord:
    """The record under a new epoch."""
    before = {**record.before, **{each: number for each, number in record.in_sync.items() if each not in in_sync}}
    return replace(
        record, epoch=record.epoch + 1, state=state_of(in_sync), master=name, in_sync=in_sync, joining={},
        before={each: number for each, number in before.items() if each not in in_sync}, reason=reason,
    )  # fmt: skip


def _promoted(version: int, record: GroupRecord, brokers: Brokers) -> Decision:
    """Another master, when a slave that is in sync says that it does not hear the present one either.

    A registration that says that the master has restarted is not enough: the slave may hang since its report.
    """
    reports = {name: _report(record, brokers, name) for name in record.in_sync if name != record.master}
    reached = {name: report for name, report in reports.items() if report is not None}
    if not reached:
        return _older(record, brokers) or _continued(record, brokers)
    if not any(each.version == version and not each.hears_master for each in reached.values()):
        return Decision()
    name, _ = furthest(reached)
    in_sync = {each: record.in_sync[each] for each in reached}
    return Decision(_with_master(record, name, in_sync, f"broker {record.master} is lost: {name} is master"))


def _continued(record: GroupRecord, brokers: Brokers) -> Decision:
    """A later process of a member as master: no member is reached, though not all processes of the set have ended."""
    complete = _complete(record, brokers)
    restarted = sorted(record.in_sync.keys() & _present(brokers).keys())
    away = ", ".join(sorted(record.in_sync.keys() - {*restarted}))
    if complete:
        name, report = furthest(complete)
        reason = f"broker {away} is not reached; {name} has restarted and is master: its log is complete"
        return Decision(_with_master(record, name, {name: report.incarnation}, reason))
    if not restarted:
        return Decision(sentence=f"broker {away} is not reached, and no other has everything")
    which = f"the log of broker {', '.join(restarted)} is not known to be complete after a restart"
    return Decision(sentence=f"broker {away} is not reached, and {which}")


def _passed_on(record: GroupRecord, brokers: Brokers, why: str) -> Decision:
    """Another member as master, in the place of one that cannot adopt the record. All of them have everything."""
    reports = {name: _report(record, brokers, name) for name in record.in_sync}
    able = {name: report for name, report in reports.items() if report is not None and not report.cannot_lead}
    if not able:
        return Decision(sentence=f"broker {record.master} cannot lead, and no other has everything: {why}")
    name, _ = furthest(able)
    return Decision(
        _with_master(record, name, dict(record.in_sync), f"broker {record.master} cannot lead: {name} is master")
    )


def furthest(reports: Mapping[str, BrokerReport]) -> tuple[str, BrokerReport]:
    return max(sorted(reports.items()), key=lambda each: each[1].log)


def state_of(in_sync: Mapping[str, int]) -> GroupState:
    return GroupState.SYNC_REPLICATION if len(in_sync) > 1 else GroupState.SINGLE_MASTER


# -- slaves come and go


def _without_lost(record: GroupRecord, master: BrokerReport) -> GroupRecord | None:
    """The record without the members that are lost; None: all are there."""
    awaited = record.awaited
    lost = sorted(name for name, incarnation in awaited.items() if _is_lost(name, incarnation, master))
    if not lost:
        return None
    in_sync = {name: each for name, each in record.in_sync.items() if name not in lost}
    joining = {name: each for name, each in record.joining.items() if name not in lost}
    reason = f"broker {', '.join(lost)} is lost"
    if len(record.in_sync) == 1:
        return replace(record, state=_lone_state(joining), joining=joining, reason=reason)
    if len(in_sync) == 1:  # the master goes on alone
        return _with_master(record, record.master, in_sync, f"{reason}: {record.master} is alone")
    before = {**record.before, **{name: each for name, each in record.in_sync.items() if name in lost}}
    return replace(record, in_sync=in_sync, joining=joining, before=before, reason=reason)


def _lone_state(joining: Mapping[str, int]) -> GroupState:
    return GroupState.SEMI_SYNC if joining else GroupState.ASYNC_REPLICATION


def _is_lost(name: str, incarnation: int, master: BrokerReport) -> bool:
    """Whether the master has lost that process, or another one has come in its place.

    The master has to say so, though a registration may tell it earlier: one that hangs must not become a lone master by
    a report of before, because no other could replace it then.
    """
    follower = master.followers.get(name)
    return follower is not None and (follower.is_lost or follower.incarnation != incarnation)


def _joined(
    record: GroupRecord, brokers: Brokers, master: BrokerReport, age_s: float, resting: Container[str]
) -> GroupRecord | None:
    """One step of a slave on its way into the set; None: nothing changes."""
    for name, incarnation in record.joining.items():
        follower = master.followers.get(name)
        if follower is not None and follower.incarnation == incarnation and follower.has_all:
            in_sync = {**record.in_sync, name: incarnation}
            joining = {each: number for each, number in record.joining.items() if each != name}
            return replace(
                record,
                state=GroupState.SYNC_REPLICATION,
                in_sync=in_sync,
                joining=joining,
                reason=f"broker {name} has everything",
            )
    if record.joining:
        if age_s <= JOIN_S_MAX:
            return None
        state = record.state if len(record.in_sync) > 1 else GroupState.ASYNC_REPLICATION
        names = ", ".join(sorted(record.joining))
        return replace(record, state=state, joining={}, reason=f"broker {names} did not close the gap in time")
    following = {
        name: follower
        for name, follower in sorted(master.followers.items())
        if name not in record.in_sync and _follows(name, follower, brokers)
    }
    near = [name for name, each in following.items() if each.gap <= JOIN_GAP_BYTES and name not in resting]
    if near and record.state is not GroupState.SINGLE_MASTER:
        state = record.state if len(record.in_sync) > 1 else GroupState.SEMI_SYNC
        joining = {near[0]: following[near[0]].incarnation}
        return replace(record, state=state, joining=joining, reason=f"broker {near[0]} is near the end of the log")
    if following and record.state is GroupState.SINGLE_MASTER:
        return replace(
            record, state=GroupState.ASYNC_REPLICATION, reason=f"broker {next(iter(following))} copies the log"
        )
    if not following and record.state is GroupState.ASYNC_REPLICATION and age_s >= COPY_S_MIN:
        return replace(record, state=GroupState.SINGLE_MASTER, reason="no broker copies the log any more")
    return None


def _follows(name: str, follower: FollowerReport, brokers: Brokers) -> bool:
    return not follower.is_lost and name in brokers and brokers[name].incarnation == follower.incarnation

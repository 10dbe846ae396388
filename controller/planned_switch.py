"""Switches that an operator asks for. Pure: the record and the brokers' reports in, the next record or a sentence out.

The operator's command writes the record itself, by the same compare-and-set as a controller, so the two cannot
contradict each other.
"""

from dataclasses import replace

from common.cluster.group_record import GroupRecord, GroupState, LogPoint
from common.cluster.reports import BrokerReport
from controller.decision import Brokers, furthest, state_of

UNKNOWN_EPOCHS = 1000
"""Epochs that are left out when the record is missing: a broker that is not reached may have had one of them."""
FORCE = "add --force to promote it nevertheless"


def switched(version: int, record: GroupRecord, brokers: Brokers, to: str = "") -> GroupRecord | str:
    """The record that makes another in-sync member master, without any loss; or why that is not possible.

    The set stays as it is: all its members have what was acknowledged. The old master cuts what was not, and follows.

    Args:
        brokers: those that are registered, by name.
        to: the next master; "": the one whose log reaches furthest.
    """
    if to and to not in brokers and to not in _named(record):
        return _unknown(record, brokers, to)
    if record.state is not GroupState.SYNC_REPLICATION:
        return f"the group is in state {record.state.value}: no other broker has everything; {_what_force_loses()}"
    if to == record.master:
        return f"broker {to} is the master already"
    if to and to not in record.in_sync:
        members = ", ".join(sorted(record.in_sync))
        return f"broker {to} is not in sync (in sync: {members}); {_what_force_loses()}"
    ready = {name: each for name in record.in_sync if (each := _ready(version, record, brokers, name)) is not None}
    ready.pop(record.master, None)
    if to and to not in ready:
        return _not_ready(record, brokers, to)
    if not ready:
        return "no other member of the in-sync set is reached: try again"
    master = _ready(version, record, brokers, record.master)
    if master is not None:
        narrow = {name for name, each in ready.items() if 0 < each.id_window_mib < master.id_window_mib}
        if to in narrow or narrow == ready.keys():
            return _forgets_ids(to or min(narrow), brokers, master.id_window_mib)
        ready = {name: each for name, each in ready.items() if name not in narrow}
    name = to or furthest(ready)[0]
    return replace(
        record, epoch=record.epoch + 1, master=name, joining={},
        reason=f"switched by an operator from broker {record.master} to {name}",
    )  # fmt: skip


def _named(record: GroupRecord | None) -> dict[str, int]:
    """All brokers that the record names."""
    return {} if record is None else {**record.in_sync, **record.joining, **record.before}


def _unknown(record: GroupRecord | None, brokers: Brokers, to: str) -> str:
    names = ", ".join(sorted({*brokers, *_named(record)})) or "none"
    return f"the group has no broker {to} (brokers: {names})"


def _not_ready(record: GroupRecord, brokers: Brokers, to: str) -> str:
    """Why a member of the in-sync set cannot be master now."""
    view = brokers.get(to)
    if view is None:
        return f"broker {to} is not registered: start it"
    if view.incarnation != record.in_sync[to]:
        return f"broker {to} has restarted and is not in sync again yet: wait for it; {_what_force_loses()}"
    if view.report is None:
        return f"broker {to} is registered and not reached: try again"
    return f"broker {to} has not adopted the newest record: try again"


def _forgets_ids(name: str, brokers: Brokers, window_mib: int) -> str:
    report = brokers[name].report
    own_mib = 0 if report is None else report.id_window_mib
    return (
        f"broker {name} would forget ids that the master still knows (--id-window-mib {own_mib} and {window_mib}), and "
        f"store what is sent again a second time: start it with --id-window-mib {window_mib}"
    )


def _what_force_loses() -> str:
    return f"what only the master has would be lost: {FORCE}"


def _ready(version: int, record: GroupRecord, brokers: Brokers, name: str) -> BrokerReport | None:
    """The report of a member that is the process of the record and has adopted it."""
    view = brokers.get(name)
    report = None if view is None else view.report
    if report is None or report.incarnation != record.in_sync[name] or report.version != version:
        return None
    return report


def forced(record: GroupRecord | None, brokers: Brokers, to: str) -> GroupRecord | str:
    """The record that makes a registered broker master, whatever it has; or why not even that is possible.

    The broker is alone in the set, and no later decision waits for what the others had.
    """
    view = brokers.get(to)
    if view is None:
        return f"broker {to} is not registered: start it" if to in _named(record) else _unknown(record, brokers, to)
    report = view.report
    if report is None:
        return f"broker {to} is registered and not reached"
    in_sync = {to: report.incarnation}
    last = max(each.report.log.epoch for each in brokers.values() if each.report is not None)
    epoch = last + UNKNOWN_EPOCHS if record is None else max(last, record.epoch) + 1
    return GroupRecord(
        epoch, state_of(in_sync), to, in_sync, log_id=report.log_id,
        # Else its log would count as an older copy after a restart.
        floor=LogPoint(0, 0) if record is None else min(record.floor, report.log),
        reason=f"broker {to} was made master by an operator, by force",
    )  # fmt: skip


def left_out(record: GroupRecord | None, brokers: Brokers, to: str) -> list[str]:
    """One sentence for each member that `forced` leaves out and that may have more than the next master.

    Without a record that names the members, all registered brokers may be some.
    """
    report = brokers[to].report
    log_id = record.log_id if record is not None else "" if report is None else report.log_id
    end = report.log if report is not None and report.log_id == log_id else LogPoint(0, 0)
    found = []
    if log_id and (report is None or report.log_id != log_id):
        found.append(f"broker {to} has another log than the group: all messages of the group are lost")
    for name in sorted((brokers if record is None else _named(record)).keys() - {to}):
        view = brokers.get(name)
        other = None if view is None else view.report
        if other is None:
            found.append(f"broker {name} is left out and not reached: what only it has is lost")
        elif record is None and other.log_id and other.log_id != log_id:
            found.append(f"broker {name} is left out: it has another log, whose messages the group does not have")
        elif other.log_id != log_id or other.log <= end:
            found.append(f"broker {name} is left out; its log does not reach further")
        elif other.log.epoch == end.epoch:
            more = other.log.position - end.position
            found.append(f"broker {name} is left out: {more:,} bytes of its log that only it has are lost")
        else:
            found.append(f"broker {name} is left out: its log is of a later epoch, and what only it has is lost")
    return found

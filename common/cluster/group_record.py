"""The record of a broker group: who is master, and whom it waits for. Design: docs/design/0031-switch-over.md.

There is one record per group, changed only by controllers and only by compare-and-set on its version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

Incarnation = int
"""A random number of 63 bits for one start of a broker's process: a broker that has restarted is another member."""


class InvalidGroupRecord(Exception):
    """The stored record cannot be read; the message names the field and the rule."""


class GroupState(Enum):
    SINGLE_MASTER = "SINGLE_MASTER"
    ASYNC_REPLICATION = "ASYNC_REPLICATION"
    SEMI_SYNC = "SEMI_SYNC"
    SYNC_REPLICATION = "SYNC_REPLICATION"


class LogPoint(NamedTuple):
    """The end of a log. Of two logs with one history, the one with the greater end has every batch of the other.

    Attributes:
        epoch: of the last batch below the position; 0 before the first epoch.
    """

    epoch: int
    position: int


NO_LOG = LogPoint(0, 0)


@dataclass(frozen=True)
class GroupRecord:
    """
    Attributes:
        epoch: of the master's term.
        in_sync: the master and the members that have everything that was acknowledged, by name. Only these are promoted.
        joining: members that the master waits for, too, and that are not known to have everything yet.
        before: members of the set before this one that it has lost, until the master has synced what that set confirmed: one
            of them may be the only one that has it after a power cut.
        log_id: of the group's log; "" until its first master has made one.
        floor: what all members had synced when this was written: a log that does not reach it is an older copy.
        reason: why the group was moved here, one sentence.
        at_ms: Unix time, for people only.
    """

    epoch: int
    state: GroupState
    master: str
    in_sync: Mapping[str, Incarnation]
    joining: Mapping[str, Incarnation] = field(default_factory=dict)
    before: Mapping[str, Incarnation] = field(default_factory=dict)
    log_id: str = ""
    floor: LogPoint = NO_LOG
    reason: str = ""
    at_ms: int = 0

    @property
    def awaited(self) -> dict[str, Incarnation]:
        """The members that the master waits for before it confirms anything."""
        return {name: number for name, number in (*self.in_sync.items(), *self.joining.items()) if name != self.master}

    def to_value(self) -> dict[str, Any]:
        """As JSON is made of it."""
        return {
            "epoch": self.epoch, "state": self.state.value, "master": self.master, "in_sync": dict(self.in_sync),
            "joining": dict(self.joining), "before": dict(self.before), "log_id": self.log_id,
            "floor": list(self.floor), "reason": self.reason, "at_ms": self.at_ms,
        }  # fmt: skip

    @classmethod
    def from_value(cls, value: Any) -> "GroupRecord":
        """Raises InvalidGroupRecord. Unknown fields are ignored: they are a later version's."""
        if not isinstance(value, dict):
            raise InvalidGroupRecord("the record: not a map")
        try:
            state = GroupState(value.get("state"))
        except ValueError:
            raise InvalidGroupRecord(f"state: {value.get('state')!r} is no state of a group") from None
        floor = value.get("floor", [0, 0])
        if not isinstance(floor, list) or len(floor) != 2:
            raise InvalidGroupRecord("floor: use [epoch, position]")
        record = cls(
            _number("epoch", value.get("epoch"), 1), state, _text("master", value.get("master")),
            _members("in_sync", value.get("in_sync")), _members("joining", value.get("joining", {})),
            _members("before", value.get("before", {})),
            _text("log_id", value.get("log_id", "")), LogPoint(*(_number("floor", each, 0) for each in floor)),
            _text("reason", value.get("reason", "")), _number("at_ms", value.get("at_ms", 0), 0),
        )  # fmt: skip
        if fault := record.fault():
            raise InvalidGroupRecord(fault)
        return record

    def fault(self) -> str | None:
        """The first contradiction between two fields, as a sentence; None: there is none."""
        if self.master not in self.in_sync:
            return f"in_sync: the master {self.master!r} is not in it"
        if self.joining.keys() & self.in_sync.keys():
            return "joining: a member that is in sync cannot join"
        if (len(self.in_sync) > 1) != (self.state is GroupState.SYNC_REPLICATION):
            return f"in_sync: {len(self.in_sync)} members contradict the state {self.state.value}"
        if self.joining and self.state not in (GroupState.SEMI_SYNC, GroupState.SYNC_REPLICATION):
            return f"joining: not in the state {self.state.value}"
        if self.state is GroupState.SEMI_SYNC and not self.joining:
            return "joining: SEMI_SYNC needs a member that joins"
        return None


def _number(name: str, value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 1 << 63:
        raise InvalidGroupRecord(f"{name}: use a whole number from {low} to 2^63 - 1")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidGroupRecord(f"{name}: use a text")
    return value


def _members(name: str, value: Any) -> dict[str, Incarnation]:
    if not isinstance(value, dict):
        raise InvalidGroupRecord(f"{name}: use a map from names to incarnations")
    return {_text(name, member): _number(f"{name}.{member}", number, 0) for member, number in value.items()}

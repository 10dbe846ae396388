"""Reports of brokers to the controllers, at each change and every 100 ms. Design: docs/design/0031-switch-over.md."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from common.cluster.group_record import NO_LOG, Incarnation, LogPoint


class FollowerReport(NamedTuple):
    """One slave, as the master sees it.

    Attributes:
        gap: bytes of the log that it does not have yet.
        is_lost: its link is closed or silent, or it makes no progress while something waits for it.
        has_all: it has, on its disk, all that was written when the master adopted the record that it reports.
        lacks_since_ms: Unix time at which the first message that it lacks was stored; 0: it lacks none, or is away.
    """

    incarnation: Incarnation
    gap: int
    is_lost: bool
    has_all: bool
    lacks_since_ms: int = 0


@dataclass(frozen=True)
class BrokerReport:
    """One broker.

    Attributes:
        version: of the newest record that it has adopted; 0: none.
        log_id: "" while it has no log.
        log: how far it reaches; below the first damage.
        synced: as the master, what all members of the adopted record have on their disks. A power cut takes no more.
        continues: this incarnation, and the earlier ones of which it still has everything: each ended in order, or the
            machine went on. A power cut, a failed sync and a truncation leave only the present one.
        is_settled: as the master, whether all that it had when it adopted the record is synced here. Only then a master
            without slaves confirms anything.
        hears_master: as a slave, whether the master of the adopted record is heard.
        followers: as the master, its slaves by name: all that it waits for, and others that follow.
        can_begin: whether it may become the first master of its group: it has a log, or was told to make one.
        damaged: segments of its log with damage that is not repaired.
        repaired_bytes: of its log, from another broker since the process started.
        cannot_lead: why it could not begin to lead when a record named it, within the last 10 s; "" otherwise.
        id_window_mib: memory for the ids that it checks sends against as the master; 0: it does not say.
    """

    incarnation: Incarnation
    version: int
    log_id: str
    log: LogPoint
    synced: LogPoint = NO_LOG
    continues: frozenset[Incarnation] = frozenset()
    is_settled: bool = False
    hears_master: bool = False
    followers: Mapping[str, FollowerReport] = field(default_factory=dict)
    can_begin: bool = True
    damaged: int = 0
    repaired_bytes: int = 0
    cannot_lead: str = ""
    id_window_mib: int = 0

    def to_value(self) -> dict[str, Any]:
        """As JSON is made of it."""
        return {
            "incarnation": self.incarnation, "version": self.version, "log_id": self.log_id, "log": list(self.log),
            "synced": list(self.synced), "continues": sorted(self.continues), "is_settled": self.is_settled,
            "hears_master": self.hears_master, "can_begin": self.can_begin,
            "followers": {name: each._asdict() for name, each in self.followers.items()},
            "damaged": self.damaged, "repaired_bytes": self.repaired_bytes,
            "cannot_lead": self.cannot_lead, "id_window_mib": self.id_window_mib,
        }  # fmt: skip

    @classmethod
    def from_value(cls, value: Any) -> "BrokerReport":
        """Raises ValueError. Unknown fields are ignored: they are a later version's."""
        try:
            followers = {
                name: FollowerReport(
                    _number(each["incarnation"]),
                    _number(each["gap"]),
                    _flag(each["is_lost"]),
                    _flag(each["has_all"]),
                    _number(each.get("lacks_since_ms", 0)),
                )
                for name, each in value["followers"].items()
            }
            return cls(
                _number(value["incarnation"]), _number(value["version"]), _text(value["log_id"]),
                LogPoint(*map(_number, value["log"])), LogPoint(*map(_number, value["synced"])),
                frozenset(map(_number, value["continues"])), _flag(value["is_settled"]), _flag(value["hears_master"]),
                followers, _flag(value["can_begin"]), _number(value.get("damaged", 0)),
                _number(value.get("repaired_bytes", 0)), _text(value.get("cannot_lead", "")),
                _number(value.get("id_window_mib", 0)),
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not the report of a broker: {error!r}") from None


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number from 0 on")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:  # anything else would count as one of the two, and may move a master
        raise ValueError(f"{value!r} is not true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


class BrokerView(NamedTuple):
    """One registered broker of the group, as a controller sees it.

    Attributes:
        incarnation: of its registration, which ends some time after its process.
        report: None: the link to it is closed or silent.
    """

    incarnation: Incarnation
    report: BrokerReport | None

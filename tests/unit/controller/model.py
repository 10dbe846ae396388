"""Brokers and controllers of one group as states and steps. What is modelled is what matters to the promises.

A log is the tuple of its batches' epochs: a master only appends, so two logs that have an epoch at one place are equal
up to it. Any report may be late or missing, any link may be called lost though it is not, and a slave's
acknowledgement may be on its way for ever.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from common.cluster.group_record import NO_LOG, GroupRecord, GroupState, LogPoint
from common.cluster.reports import BrokerReport, BrokerView, FollowerReport
from controller.decision import decide
from controller.planned_switch import switched

LOG = "log"


class Broker(NamedTuple):
    """One broker's process and disk.

    Attributes:
        version: of the adopted record; 0: none yet.
        log: epoch of each batch. synced: how many of them are on the disk.
        continues: incarnations of which it has everything.
        mark: length of the log when the record was adopted.
        acks: what slaves told it under its epoch: (name, incarnation, length).
        confirmed: as the master under its epoch.
    """

    is_up: bool
    incarnation: int
    version: int
    log: tuple[int, ...]
    synced: int
    continues: frozenset[int]
    mark: int = 0
    acks: frozenset[tuple[str, int, int]] = frozenset()
    confirmed: int = 0


class World(NamedTuple):
    """
    Attributes:
        records: all that were written, the first has version 1; as their fields, because a record cannot be hashed.
        views: what the controller knows of each broker: (incarnation, report or None), as fields.
        under_way: acknowledgements of slaves: (master, its epoch, slave, incarnation, length).
        confirmed: batches that were acknowledged: (place, epoch).
        left: how many kills, power cuts, appends and records there may still be.
    """

    records: tuple[tuple, ...]
    brokers: tuple[tuple[str, Broker], ...]
    views: tuple[tuple[str, tuple | None], ...]
    under_way: frozenset[tuple[str, int, str, int, int]]
    confirmed: frozenset[tuple[int, int]]
    left: tuple[int, int, int, int]


KILLS, CUTS, APPENDS, RECORDS = range(4)


def packed(record: GroupRecord) -> tuple:
    return (
        record.epoch, record.state, record.master, tuple(sorted(record.in_sync.items())),
        tuple(sorted(record.joining.items())), tuple(sorted(record.before.items())), record.floor,
    )  # fmt: skip


def unpacked(fields: tuple) -> GroupRecord:
    epoch, state, master, in_sync, joining, before, floor = fields
    return GroupRecord(epoch, state, master, dict(in_sync), dict(joining), dict(before), LOG, floor)


def group(names: str, is_in_sync: bool, kills: int, cuts: int, appends: int, records: int) -> World:
    """A group whose first broker is master of epoch 1, with all in sync or alone."""
    state = GroupState.SYNC_REPLICATION if is_in_sync else GroupState.SINGLE_MASTER
    record = GroupRecord(1, state, names[0], dict.fromkeys(names if is_in_sync else names[0], 1), log_id=LOG)
    brokers = tuple((name, Broker(True, 1, 1, (1,), 1, frozenset((1,)), mark=1)) for name in names)
    views = tuple((name, (1, None)) for name in names)
    return World((packed(record),), brokers, views, frozenset(), frozenset(), (kills, cuts, appends, records))


class Steps:
    """The steps that a world allows.

    Args:
        must_sync: the master acknowledges only what it has synced, as with durability FSYNC.
        mutant: a rule that is left out.
        switches: whether an operator asks for other masters.
    """

    def __init__(self, must_sync: bool = False, mutant: str = "", switches: bool = False) -> None:
        self._must_sync, self._mutant, self._switches = must_sync, mutant, switches
        self._decided: dict = {}

    def following(self, world: World) -> Iterator[tuple[str, World]]:
        """Each step with its result."""
        for name, broker in world.brokers:
            if broker.is_up:
                yield from self._of_broker(world, name, broker)
            else:
                yield f"{name} starts", self._started(world, name, broker)
            yield from self._seen(world, name, broker)
        yield from self._decisions(world)

    def _of_broker(self, world: World, name: str, broker: Broker) -> Iterator[tuple[str, World]]:
        if broker.version < len(world.records):
            yield f"{name} adopts", _with(world, name, self._adopted(world, name, broker))
        if broker.synced < len(broker.log):
            yield f"{name} syncs", _with(world, name, broker._replace(synced=len(broker.log)))
        if world.left[KILLS]:
            yield f"{name} is killed", _spent(_with(world, name, broker._replace(is_up=False)), KILLS)
        if world.left[CUTS]:
            cut = broker._replace(is_up=False, log=broker.log[: broker.synced], continues=frozenset())
            yield f"{name} loses power", _spent(_with(world, name, cut), CUTS)
        record = self._own_term(world, name, broker)
        if record is not None:
            yield from self._of_master(world, name, broker, record)

    def _own_term(self, world: World, name: str, broker: Broker) -> GroupRecord | None:
        """The record under which it is master."""
        if not broker.version:
            return None
        record = unpacked(world.records[broker.version - 1])
        is_master = record.master == name and record.in_sync[name] == broker.incarnation
        return record if is_master else None

    def _of_master(self, world: World, name: str, broker: Broker, record: GroupRecord) -> Iterator[tuple[str, World]]:
        if world.left[APPENDS]:
            yield (
                f"{name} appends",
                _spent(_with(world, name, broker._replace(log=(*broker.log, record.epoch))), APPENDS),
            )
        for slave, other in world.brokers:
            if slave != name and other.is_up:
                copied = self._copied(world, broker, record, slave, other)
                if copied is not None and copied != other:
                    sent = (name, record.epoch, slave, copied.incarnation, len(copied.log))
                    yield (
                        f"{slave} copies from {name}",
                        _with(world, slave, copied)._replace(under_way=world.under_way | {sent}),
                    )
        for ack in world.under_way:
            if ack[:2] == (name, record.epoch) and ack[2:] not in broker.acks:
                yield f"{name} hears {ack[2]}", _with(world, name, broker._replace(acks=broker.acks | {ack[2:]}))
        reached = self._confirmable(broker, record)
        if reached > broker.confirmed:
            done = _with(world, name, broker._replace(confirmed=reached))
            yield (
                f"{name} acknowledges",
                done._replace(confirmed=world.confirmed | set(enumerate(broker.log[:reached]))),
            )

    def _confirmable(self, broker: Broker, record: GroupRecord) -> int:
        ends = [len(broker.log)]
        awaited = {} if self._mutant == "a member that joins is not waited for" and record.joining else record.awaited
        for slave, incarnation in awaited.items():
            ends.append(
                max((length for who, number, length in broker.acks if (who, number) == (slave, incarnation)), default=0)
            )
        is_alone = len(record.in_sync) == 1 and self._mutant != "a master with a member that joins does not sync"
        if self._must_sync or is_alone or not awaited:
            ends.append(broker.synced)
        if (is_alone or not awaited) and broker.synced < broker.mark:
            if self._mutant != "a lone master does not sync first":
                return 0
            ends[-1] = len(broker.log)
        return min(ends)

    def _copied(self, world: World, master: Broker, record: GroupRecord, slave: str, other: Broker) -> Broker | None:
        """The slave after it has all of the master's log; None: it refuses the epoch."""
        known = unpacked(world.records[other.version - 1]).epoch if other.version else 0
        if record.epoch < known and self._mutant != "slaves take any epoch":
            return None
        if self._own_term(world, slave, other) is not None and known >= record.epoch:
            return None
        if other.version < master.version:
            other = self._adopted(world, slave, other, master.version)
        common = 0
        while common < min(len(other.log), len(master.log)) and other.log[common] == master.log[common]:
            common += 1
        if common < len(other.log):
            other = other._replace(continues=frozenset((other.incarnation,)))
        return other._replace(log=master.log, synced=min(other.synced, common))

    def _adopted(self, world: World, name: str, broker: Broker, version: int = 0) -> Broker:
        version = version or len(world.records)
        new = unpacked(world.records[version - 1])
        known = unpacked(world.records[broker.version - 1]).epoch if broker.version else 0
        adopted = broker._replace(version=version, mark=len(broker.log))
        if new.epoch != known:
            adopted = adopted._replace(acks=frozenset(), confirmed=0)
            if new.master == name and new.in_sync[name] == broker.incarnation:
                adopted = adopted._replace(log=(*broker.log, new.epoch))
        return adopted

    def _started(self, world: World, name: str, broker: Broker) -> World:
        number = broker.incarnation + 1
        begun = Broker(True, number, 0, broker.log, len(broker.log), broker.continues | {number})
        if self._mutant == "every start counts as complete":
            begun = begun._replace(continues=frozenset(range(number + 1)))
        return _with(world, name, begun)

    # -- the controller

    def _seen(self, world: World, name: str, broker: Broker) -> Iterator[tuple[str, World]]:
        """The controller hears of the broker, or not; what a broker says of a link may be wrong."""
        view = dict(world.views)[name]
        if view is not None and view[1] is not None:
            yield f"the link to {name} is silent", _viewed(world, name, (view[0], None))
        if not broker.is_up:
            if view is not None:
                yield f"{name}'s registration ends", _viewed(world, name, None)
            return
        others = [each for each, _ in world.brokers if each != name]
        lone = self._own_term(world, name, broker) is None
        flags = product((False, True), repeat=1) if lone else product((False, True), repeat=len(others))
        for each in flags:
            seen = (broker.incarnation, (broker, each))
            if seen != view:
                yield f"{name} {'suspects' if any(each) else 'reports'} {each}", _viewed(world, name, seen)

    def _decisions(self, world: World) -> Iterator[tuple[str, World]]:
        if not world.left[RECORDS]:
            return
        for age_s in (0.0, 1.0):
            key = world.records, world.views, age_s
            if key not in self._decided:
                self._decided[key] = self._decide(world, age_s)
            written = self._decided[key]
            if written is not None:
                yield (
                    f"the controller writes {written.reason!r}",
                    _spent(world._replace(records=(*world.records, packed(written))), RECORDS),
                )

        if self._switches:
            yield from self._switched(world)

    def _switched(self, world: World) -> Iterator[tuple[str, World]]:
        """An operator makes another member master, by what the controller knows."""
        brokers = {name: self._view(world, name, view) for name, view in world.views if view is not None}
        record = unpacked(world.records[-1])
        if self._mutant == "a switch to any broker":
            members = {name: each.incarnation for name, each in brokers.items()}
            record = replace(record, state=GroupState.SYNC_REPLICATION, in_sync={**members, **record.in_sync})
        for name in brokers:
            found = switched(len(world.records), record, brokers, name)
            if isinstance(found, GroupRecord):
                assert found.fault() is None, found.fault()
                yield (
                    f"an operator switches to {name}",
                    _spent(world._replace(records=(*world.records, packed(found))), RECORDS),
                )

    def _decide(self, world: World, age_s: float) -> GroupRecord | None:
        brokers = {name: self._view(world, name, view) for name, view in world.views if view is not None}
        record = unpacked(world.records[-1])
        found = decide(len(world.records), record, brokers, age_s=age_s).record
        if found is not None:
            assert found.fault() is None, found.fault()
        if found is not None and self._mutant == "the set before is forgotten":
            return GroupRecord.from_value({**found.to_value(), "before": {}})
        return found

    def _view(self, world: World, name: str, view: tuple) -> BrokerView:
        incarnation, seen = view
        if seen is None:
            return BrokerView(incarnation, None)
        broker, flags = seen
        record = self._own_term(world, name, broker)
        followers: Mapping[str, FollowerReport] = {}
        if record is not None:
            others = [each for each, _ in world.brokers if each != name]
            followers = {
                each: self._follower(broker, record, each, is_lost) for each, is_lost in zip(others, flags, strict=True)
            }
        return BrokerView(
            incarnation,
            BrokerReport(
                broker.incarnation, broker.version, LOG, _point(broker.log, len(broker.log)),
                NO_LOG, broker.continues,  # the floor is against older copies of a log, which are not modelled
                record is not None and broker.synced >= broker.mark, record is None and not flags[0], followers,
            ),
        )  # fmt: skip

    def _follower(self, master: Broker, record: GroupRecord, name: str, is_lost: bool) -> FollowerReport:
        acks = [(number, length) for who, number, length in master.acks if who == name]
        number = record.awaited.get(name, max((number for number, _ in acks), default=0))
        end = max((length for each, length in acks if each == number), default=0)
        return FollowerReport(number, 0 if number else 2 << 20, is_lost or not number, end >= master.mark)


def _point(log: tuple[int, ...], length: int) -> LogPoint:
    return LogPoint(log[length - 1] if length else 0, length)


def _with(world: World, name: str, broker: Broker) -> World:
    return world._replace(brokers=tuple((each, broker if each == name else old) for each, old in world.brokers))


def _viewed(world: World, name: str, view: tuple | None) -> World:
    return world._replace(views=tuple((each, view if each == name else old) for each, old in world.views))


def _spent(world: World, what: int) -> World:
    left = tuple(number - (index == what) for index, number in enumerate(world.left))
    return world._replace(left=left)  # type: ignore[arg-type]


def lost(world: World) -> set[tuple[int, int]]:
    """Acknowledged batches that the group's master does not have: one that has adopted the newest record, in its term."""
    record = unpacked(world.records[-1])
    master = dict(world.brokers)[record.master]
    if not master.is_up or master.version != len(world.records) or master.incarnation != record.in_sync[record.master]:
        return set()
    return {(place, epoch) for place, epoch in world.confirmed if master.log[place : place + 1] != (epoch,)}

"""A broker of a group with replicas: adopts records of its group, and is its master or a slave. 0031-switch-over.md.

Without sockets, threads and waiting: a process, or a simulation, passes turns, ticks and frames, and runs
`change_role()` after each `BrokerHost.role_is_due()`. A master that is replaced opens its log again, as at a start:
another master's log goes on where its own may have to be cut.
"""

import logging
from collections.abc import Callable, Hashable
from dataclasses import replace

from common.cluster.coordination import Coordination
from common.cluster.group_record import NO_LOG, GroupRecord
from common.cluster.reports import BrokerReport
from common.limited_log import LimitedLog
from engine.broker.group_ops import GroupOps
from engine.broker.hand_over import HandOvers
from engine.broker.host import BrokerHost, MasterConnection, RepairCounts, RepairPeer, peers_of
from engine.broker.incarnations import Incarnations
from engine.broker.known_group import KnownGroup
from engine.broker.life import BrokerLife
from engine.broker.native import BrokerTurn, send_tail
from engine.broker.piece_reads import PieceReads
from engine.broker.role_fault import RoleFault
from engine.broker.slave_reads import SlaveReads
from engine.broker.standby import Standby
from engine.errors import DiskFullError, LockedError, LogError
from engine.log.format import parse_segment_header
from engine.log.segment.segment import create_segment
from engine.log.segment.side_files import segment_bases
from engine.log.upkeep.renewal import order_renewal, resume_renewal
from engine.log.upkeep.truncation import TruncationOrder, order_truncation
from engine.ops.roles import LinkKeys
from engine.replication.broker import GroupBroker, UnsoundLogError
from engine.replication.frames import Follow

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)

TICK_MS = 20
SYNC_MS = 200
"""Longest time for which a master leaves bytes unsynced: the record's floor, and slaves that join, wait for it."""
DELETIONS_MS = 1000
"""Time between two looks of a slave for segments that its master has deleted."""
DISK_FULL_S = 1.0
"""Pause before a role is tried again for which the disk had no room."""


class BrokerCore:
    """The broker of one process.

    Args:
        host: the process.
        can_begin: whether it may make the log of a new group.
        id_window_mib: as it reports it; 0: not at all.
    Attributes:
        turns: what it does at the end of each turn of the loop.
    """

    def __init__(
        self, name: str, group_name: str, host: BrokerHost, incarnations: Incarnations, coordination: Coordination, *,
        keys: LinkKeys, can_begin: bool, id_window_mib: int = 0,
    ) -> None:  # fmt: skip
        self.name, self._host, self._can_begin = name, host, can_begin
        self._clock, self._id_window_mib = host.env.clock, id_window_mib
        self.incarnations = incarnations
        self.known = KnownGroup(group_name, coordination, host.role_is_due)
        self.life: BrokerLife | None = None
        self._link: MasterConnection | None = None
        self._link_address = ""
        self._adopted = (0, 0)  # epoch and version of the record
        self._synced_ms = self._deletions_ms = 0
        self._reopens = False
        self._fault = ""
        self._role_fault = RoleFault(self._clock.monotonic_ms)
        self.repairs = RepairCounts()
        self.ops = GroupOps(self, self._clock.monotonic_ms, PieceReads(host.env, host.in_loop))
        self.turns = BrokerTurn(self, self.ops.slaves, self._clock.monotonic_ms, send_tail, host.role_is_due)
        self.standby = Standby(
            keys, self._clock, host.env.random_bytes, self.identity, self.ops.handlers(), self._refusal,
            self.ops.on_closed, lambda: 0 if self.life is None else self.life.group.readable_to,
        )  # fmt: skip
        self._hand_overs = HandOvers(host, self.standby, self._ship)

    # -- for operations and links

    @property
    def group(self) -> GroupBroker | None:
        """This broker under its record; None: it has no log yet."""
        return None if self.life is None else self.life.group

    def sync_soon(self, on_synced: Callable[[], None]) -> None:
        """As a slave, sync the log."""
        if self.life is not None:
            self.life.store.when_synced(self.life.store.end_position, on_synced)

    def report(self) -> BrokerReport:
        """For the controllers."""
        if self.life is not None:
            now_ms = self._clock.monotonic_ms()
            return replace(
                self.life.group.report(now_ms), damaged=self.repairs.damaged, repaired_bytes=self.repairs.bytes,
                cannot_lead=self._role_fault.sentence, id_window_mib=self._id_window_mib,
            )  # fmt: skip
        numbers = self.incarnations
        continues = numbers.continues | {numbers.present}
        return BrokerReport(
            numbers.present, 0, "", NO_LOG, continues=continues, can_begin=self._can_begin and not self._fault,
            id_window_mib=self._id_window_mib,
        )  # fmt: skip

    def signs(self) -> Hashable:
        """What controllers decide by, of the report."""
        now_ms = self._clock.monotonic_ms()
        if self.life is None:
            return self.incarnations.present
        return self.life.group.signs(now_ms), self._role_fault.sentence

    def learn(self, version: int, record: GroupRecord) -> None:
        """Adopt the record soon if it is newer than all that are known."""
        self.known.learn(version, record)

    def identity(self) -> dict[str, object]:
        """Fields of HELLO's answer while this broker does not serve clients."""
        life = self.life
        log_id = "" if life is None else life.store.log_id.hex()
        return {"log_id": log_id, "broker_group": self.known.name, **self.replica_identity(leads=False)}

    def replica_identity(self, *, leads: bool = True) -> dict[str, object]:
        """Fields of HELLO about the group."""
        group = self.group
        master, term = ("", 0) if group is None else (group.master, group.epoch)
        return {"leads": leads, "broker": self.name, "master": master, "term": term}

    def told(self) -> None:
        """Tell the controllers what has changed."""
        self.ops.report_changes()

    def end(self, reason: str) -> None:
        """End the process: its disk fails, and another broker can lead."""
        self._host.env.die(reason)

    def first_follow(self) -> Follow:
        """The FOLLOW of a broker without a log."""
        newest = self.known.newest
        return Follow(newest[1].epoch if newest else 0, self.incarnations.present, 0)

    def make_log(self, header: bytes) -> None:
        """Make a log that begins with a segment of this header, and open it."""
        if self.life is not None:
            return
        if self._fault and self._open_without_view():
            return
        if self._fault:
            self.renew_log()
        env, directory = self._host.env, f"{self._host.directory}/log"
        env.make_directory(directory)
        parsed = parse_segment_header(header, directory)
        if parsed is None:
            raise ConnectionError("the header of the master's first segment does not verify")
        if not any(name.endswith(".seg") for name in env.list(directory)):  # else its log could not be opened before
            create_segment(env, directory, parsed).close()
        self.open()
        log.info("broker=%s: begins with a copy of log %s", self.name, parsed.log_id.hex())
        self._host.role_is_due()

    def cut_log(self, position: int) -> None:
        """Cut the log at a position and open it again, as a process that continues nothing. Blocks."""
        assert self.life is not None
        order = TruncationOrder(self.life.store.log_id, self.life.store.epoch, position)
        log.warning("broker=%s: the log is cut from %d to %d", self.name, self.life.store.end_position, position)
        try:
            self._close_life()
            self.incarnations.renew()
            order_truncation(self._host.env, self._host.directory, order)
            self.incarnations.check(None)  # whatever was torn is taken off: damage below is none of a power cut
            self.open()
        except Exception as error:
            # Without an open log this broker would copy its master's, over its own. A start carries out the order.
            log.exception("broker=%s: the cut of the log failed", self.name)
            self._host.env.die(f"the cut of the log failed: {error}")
        self.register()
        self._host.role_is_due()

    def renew_log(self) -> None:
        """Put the log aside; the master gives this broker another one. Blocks."""
        log.warning("broker=%s: the log is put aside, and copied anew", self.name)
        try:
            self._close_life()
            self.incarnations.renew()
            order_renewal(self._host.env, self._host.directory)
            resume_renewal(self._host.env, self._host.directory)
        except Exception as error:
            self._host.env.die(f"the log cannot be put aside: {error}")
        self._fault = ""
        self._host.role_is_due()
        self.register()

    def repair_peers(self) -> list[RepairPeer]:
        """The brokers from which this log can be repaired now. Callable from every thread."""
        return [] if self.group is None else peers_of(self.group, self.known.addresses)

    def reopen(self) -> None:
        """As a slave, open the log again soon: a part was repaired that it has gone without. From every thread."""
        self._reopens = True
        self._host.role_is_due()

    def _refusal(self) -> str:
        group = self.group
        master = "" if group is None else group.master
        return f'broker "{self.name}" is not the master of its group' + (f': broker "{master}" is' if master else "")

    # -- the role

    def start(self) -> None:
        """Open the log if there is one. Blocks. One that cannot be opened waits for a master to mend it."""
        resume_renewal(self._host.env, self._host.directory)
        if not segment_bases(self._host.env.list(f"{self._host.directory}/log")):
            return
        try:
            self.open()
        except LockedError:
            raise
        except LogError as error:
            self._fault = str(error)
            log.error("broker=%s: the log cannot be opened, and waits for a master to mend it: %s", self.name, error)

    def _open_without_view(self) -> bool:
        """Open a log that ends before its checkpoint, as one that continues nothing: its master has the rest."""
        env, state = self._host.env, f"{self._host.directory}/state"
        self.incarnations.renew()
        try:
            if env.exists(state):
                env.set_aside(state)
            self.open()
        except LogError as error:
            log.error("broker=%s: the log cannot be opened without its view either: %s", self.name, error)
            return False
        self._fault = ""
        self._host.role_is_due()
        self.register()
        return True

    def open(self) -> None:
        """Open the log, which refuses appends until a record makes this broker the master. Blocks."""
        self._live(BrokerLife(self._host, self.name, self.incarnations))

    def _live(self, life: BrokerLife) -> None:
        self.life = life
        self._adopted = (0, 0)
        self.turns.opened()
        self.standby.attach(life.store, SlaveReads(life.store, self._clock, self._host.in_loop))
        self._host.stand_by(self.standby, has_log=True)

    def _close_life(self) -> None:
        """Close the log, and all links to clients and slaves."""
        life, self.life = self.life, None
        self.unfollow()
        self.ops.end_links()
        self._host.stand_by(self.standby, has_log=False)
        self.standby.detach()
        if life is not None:
            life.close()

    def unfollow(self) -> None:
        """Close the link to the master."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def change_role(self) -> None:
        """Adopt the newest record, serve or follow. Blocks for the disk; one call at a time."""
        try:
            self._change_role()
        except DiskFullError as error:
            limited.error("broker=%s: %s", self.name, error)
            self._role_fault.met(error)
            self._host.role_is_due(DISK_FULL_S)
        except Exception as error:
            # The log or the links are in an unknown state: a start makes them anew.
            log.exception("broker=%s: the change of its role failed", self.name)
            self._host.env.die(f"the change of the role failed: {error}")
        self.told()

    def _change_role(self) -> None:
        if self._reopens:
            self._reopens = False
            self._open_again()
        newest = self.known.newest
        if newest is not None and (newest[1].epoch, newest[0]) > self._adopted:
            self._adopt(*newest)
        life = self.life
        if life is not None and life.node is None and life.can_serve:
            life.serve(self.ops)
            log.info("broker=%s epoch=%d: serves as the master", self.name, life.group.epoch)
        self._follow_master()

    def _open_again(self) -> None:
        """A master goes on as it is: what was repaired counts from its next start on."""
        if self.life is not None and self.life.lead_at is None:
            self._close_life()
            self.open()

    def _adopt(self, version: int, record: GroupRecord) -> None:
        leads = record.master == self.name and record.in_sync[self.name] == self.incarnations.present
        life = self.life
        if life is None:
            if not leads:
                return  # its master gives this broker the log first
            self.open()
        elif leads:
            self._hand_overs.end("the record has changed, and names this broker")
        elif life.lead_at is not None:
            self._cease(life)
        life = self.life
        assert life is not None
        led = life.lead_at is not None
        try:
            is_new = life.group.adopt(version, record, self._clock.monotonic_ms())
        except UnsoundLogError as error:
            self.cut_log(error.position)
            return
        self._adopted = record.epoch, version
        life.adopted()
        if is_new:
            log.info("broker=%s version=%d epoch=%d: %s", self.name, version, record.epoch, record.reason)
            self.unfollow()
            if leads and not led:
                self._role_fault.is_over()
                life.begin_to_lead()
            self.ops.end_links()
        self.turns.confirm()

    def _cease(self, life: BrokerLife) -> None:
        """Another broker is master. The log goes on as it is when it was handed over, else it is opened again."""
        can_follow = self._hand_overs.can_follow()
        life.store.refusal.follow(self._refusal())  # what is not confirmed would only have to be cut off
        self._hand_overs.end("another broker is master")
        if not can_follow:
            self._close_life()
            self.open()
            return
        self.unfollow()
        self.ops.end_links()
        self._live(BrokerLife(self._host, self.name, self.incarnations, life))

    def hand_over(self, version: int, answer: Callable[[str], None]) -> None:
        """As the master, prepare for the record that follows this version; answers "", or why not."""
        self._hand_overs.begin(self.life, version, answer)

    def _ship(self) -> None:
        self.turns.ship()
        self.turns.confirm()

    def _follow_master(self) -> None:
        """Have a link to the master of the newest record, where it is now."""
        if self.known.newest is None:
            return
        record = self.known.newest[1]
        text = self.known.addresses.get(record.master)
        life = self.life
        if record.master == self.name or text is None or (life is not None and life.lead_at is not None):
            self.unfollow()
            return
        if self.known.is_taken(self.name):
            # The master would take this link for a new one of the process that has the name, and end that one's.
            limited.warning("broker=%s: waiting: another process, or one before, is registered by that name", self.name)
            self.unfollow()
            return
        if text != self._link_address:
            self.unfollow()
        if self._link is None:
            self._link, self._link_address = self._host.follow(self, text), text

    # -- time

    def tick(self) -> None:
        """Every TICK_MS."""
        life, now_ms = self.life, self._clock.monotonic_ms()
        self.turns.has_contact = self.known.has_contact()
        self.standby.check_deadlines()
        self._hand_overs.tick()
        if life is not None:
            life.store.cold.give_back_idle()
        if life is not None and life.lead_at is not None:
            if life.store.end_position > life.store.durable_position and now_ms >= self._synced_ms + SYNC_MS:
                self._synced_ms = now_ms
                life.sync()
            self.turns.again()
        elif life is not None:
            if life.group.begins_sync(now_ms):
                life.sync()
            if now_ms >= self._deletions_ms + DELETIONS_MS:
                self._deletions_ms = now_ms
                life.follow_deletions()
        self.ops.report_changes()

    def register(self) -> None:
        """Register this process as the broker, in the place of an earlier incarnation of it."""
        self.known.register(self.name, self.incarnations.present, self._host.address)

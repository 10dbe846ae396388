"""One broker of a group under the record that it has adopted: as the master, or as a slave of it.

Pure but for the log: the process passes records, frames and the time, and sends what this returns. One object serves
one start of a process; a truncation needs another start. Design: docs/design/0030-replication.md and
docs/design/0031-switch-over.md.
"""

from collections.abc import Hashable, Iterator

from common.cluster.group_record import GroupRecord, Incarnation
from common.cluster.reports import BrokerReport, FollowerReport
from engine.errors import LogError, NotMasterError
from engine.log.epochs import EpochHistory
from engine.log.log import Log
from engine.log.read.raw_batches import RawBatches
from engine.replication.follow import FollowStep, ForeignLogError, answer_follow, next_step
from engine.replication.following import StaleEpochError
from engine.replication.frames import BytesFrame, Follow, Followed, SegmentFrame, StoredFrame, SyncFrame
from engine.replication.native import Confirmation, Following, Shipment
from engine.replication.positions import Confirmed
from engine.replication.shipment import SILENT_MS

NO_RECORD = "this broker has not adopted a record of its group yet"


class UnsoundLogError(LogError):
    """A power cut has left damage in the log, and whole batches above it: no other broker can have the same log.

    Attributes:
        position: of the damage. Cut there, the log can lead.
    """

    def __init__(self, position: int) -> None:
        super().__init__(f"position={position}: the log is damaged there: it has to be cut before this broker leads")
        self.position = position


class GroupBroker:
    """A broker that is in the group, or wants to be.

    Args:
        incarnation: of this process.
        continues: earlier incarnations of which the log still has everything; see `BrokerReport`.
        torn_at: what an earlier start has found torn by the last power cut; see `Incarnations`.
        is_checked: whether one has looked; None: if the log continues one.
    Attributes:
        torn_at: where a power cut has left damage in the log; None: nowhere.
        confirmation: up to where this broker answers while it is the master.
        shipments: slaves that follow, with what each was sent and has told.
    """

    def __init__(
        self, name: str, incarnation: Incarnation, log: Log, continues: frozenset[Incarnation] = frozenset(), *,
        torn_at: int | None = None, is_checked: bool | None = None,
    ) -> None:  # fmt: skip
        self._name, self._incarnation, self._log = name, incarnation, log
        self._continues = continues | {incarnation}
        self.version = 0
        self._record: GroupRecord | None = None
        self._is_alone = False
        self.confirmation = Confirmation(name)
        self.shipments: dict[str, Shipment] = {}
        self._absent_ms: dict[str, int] = {}  # as the master: awaited members that do not follow -> since when
        self._following: Following | None = None
        # Damage below is repaired in place; from there on a slave gets all again.
        kept = min(log.synced_before or log.segments.active.base, log.segments.active.base)
        self._damaged_at = min((each.position for each in log.damage if each.position >= kept), default=None)
        # What was synced, or written before a process that the log continues, no power cut takes: a bad sector did it.
        is_checked = bool(continues) if is_checked is None else is_checked
        torn = [each.position for each in log.damage if not is_checked and each.position >= log.synced_before]
        # An index hides damage from a start. What is noted counts until it was cut off, or repaired from another broker.
        torn += [torn_at] if torn_at is not None and (log.damage or log.raw.is_damaged(torn_at)) else []
        self.torn_at = min(torn, default=None)
        if self.torn_at is not None:
            self._damaged_at = min(self.torn_at, self.torn_at if self._damaged_at is None else self._damaged_at)
        log.refusal.follow(NO_RECORD)

    def adopt(self, version: int, record: GroupRecord, now_ms: int) -> bool:
        """Adopt a newer record of the group; an older one changes nothing. Returns whether all links have to end.

        A higher epoch is newer whatever its version: versions begin again when the record was lost, and an operator has
        named a master. Links end with a new epoch. Its master begins it in the log; in the page cache on return.

        Raises:
            DiskFullError: this broker cannot be master now.
            UnsoundLogError: nor can it before its log is cut.
        """
        if (record.epoch, version) <= (self.epoch, self.version):
            return False
        before = self._record.epoch if self._record is not None else 0
        leads = record.master == self._name and record.in_sync[self._name] == self._incarnation
        if leads and self.torn_at is not None:
            raise UnsoundLogError(self.torn_at)
        if record.epoch != before:
            self.shipments.clear()
            self.unfollow()
            if leads:
                self._log.epochs.begin(record.epoch, self._incarnation, self._name)
            else:
                self._log.refusal.follow(f'broker "{record.master}" is the master of the group')
        self.version, self._record = version, record
        self._is_alone = leads and not record.awaited
        if leads:
            self.confirmation.advance(self._log.end_position, self._log.durable_position)
        if leads or record.master != self._name:  # else it names an earlier process of this broker
            self.confirmation.adopt(record)
        # The time to come begins with the role: a slave does not wait for other slaves, so what it knew is from long ago.
        known = self._absent_ms if record.epoch == before else {}
        awaited = record.awaited if leads else {}
        self._absent_ms = {name: known.get(name, now_ms) for name in awaited if name not in self.shipments}
        return record.epoch != before

    @property
    def is_master(self) -> bool:
        """Whether the adopted record names this process as master."""
        return self._record is not None and not self._log.refusal.following

    @property
    def raw(self) -> RawBatches:
        """The bytes of the log, for slaves."""
        return self._log.raw

    @property
    def epoch(self) -> int:
        """Epoch of the adopted record; 0: none."""
        return 0 if self._record is None else self._record.epoch

    @property
    def master(self) -> str:
        """Name of the master, as the adopted record says; empty: there is no record."""
        return "" if self._record is None else self._record.master

    @property
    def is_replicated(self) -> bool:
        """Whether this broker is a master with other members in sync."""
        return self._record is not None and self.is_master and len(self._record.in_sync) > 1

    @property
    def is_alone(self) -> bool:
        """Whether this broker is a master that waits for no other member."""
        return self._is_alone and self.is_master

    @property
    def confirmed(self) -> Confirmed:
        """Positions up to which this broker answers while it is the master."""
        return self.confirmation.confirmed

    # -- as the master

    def follow(self, slave: str, asked: Follow, now_ms: int) -> Followed:
        """Answer a FOLLOW; the slave gets frames from now on when it has nothing to cut or to fetch.

        Raises:
            NotMasterError: this broker is no master.
            StaleEpochError: one of the two does not know the newest record.
            OSError: the disk cannot read now.
        """
        record = self._led()
        if asked.epoch != record.epoch:
            raise StaleEpochError(f"FOLLOW of epoch {asked.epoch}: this broker is master of epoch {record.epoch}")
        answer = answer_follow(self._log.raw, self._log.epochs.history(), record.epoch, asked)
        self.left(slave, now_ms)
        if answer.first <= answer.common == asked.end:
            shipment = Shipment(self._log.raw, asked.incarnation, record.epoch, answer.common, now_ms)
            self.shipments[slave] = shipment
            self._absent_ms.pop(slave, None)
            self.confirmation.stored(slave, asked.incarnation, shipment.stored, 0)
        return answer

    def left(self, slave: str, now_ms: int) -> None:
        """The slave's link is closed: it is lost at once. One that has not come yet is lost after SILENT_MS."""
        known = self.shipments.pop(slave, None)
        if known is not None and self._record is not None and slave in self._record.awaited:
            self._absent_ms[slave] = now_ms - SILENT_MS

    def is_in_sync(self, slave: str) -> bool:
        """Whether the slave can go on as the master."""
        return self._record is not None and self.is_replicated and slave in self._record.in_sync

    @property
    def slaves(self) -> list[str]:
        """Those that follow."""
        return list(self.shipments)

    def frames(self, slave: str, now_ms: int) -> Iterator[SegmentFrame | BytesFrame]:
        """Yield the frames to send to the slave now; none when it does not follow. Raises as `Shipment.next_frame`."""
        is_awaited = self._record is not None and slave in self._record.awaited
        while (shipment := self.shipments.get(slave)) is not None:
            frame = shipment.next_frame(self.confirmed.memory, now_ms, is_awaited)
            if frame is None:
                return
            yield frame

    def stored(self, slave: str, epoch: int, end: int, synced: int, now_ms: int) -> bool:
        """A slave has told what it has. Returns whether more is confirmed. Raises PayloadError: its link has to end."""
        shipment = self.shipments.get(slave)
        if shipment is None:
            return False
        shipment.told(epoch, end, synced, now_ms)
        return self.confirmation.stored(slave, shipment.incarnation, end, synced)

    def _led(self) -> GroupRecord:
        if self._record is None or not self.is_master:
            raise NotMasterError(self._log.refusal.following)
        return self._record

    # -- as a slave

    def ask(self) -> Follow:
        """The FOLLOW for the master of the adopted record."""
        epoch = 0 if self._record is None else self._record.epoch
        history, end = self._sound(self._damaged_at)
        # The header of a segment without a batch may be one of an earlier master, or of this broker.
        return Follow(epoch, self._incarnation, min(end, self._log.raw.batches_end), history.starts)

    def _sound(self, damaged_at: int | None) -> tuple[EpochHistory, int]:
        """The epochs of the log and its end, below the damage.

        A power cut may take bytes below others that it leaves. A slave counts any damage, and gets what lies above it
        again. A master keeps what lies above a bad sector.
        """
        history, end = self._log.epochs.history(), self._log.end_position
        if damaged_at is not None:
            history.cut(damaged_at)
            end = damaged_at
        return history, end

    def answered(self, answer: Followed, now_ms: int) -> FollowStep | None:
        """The master's answer; None: ask again. It is of another epoch, or damage was met. Raises as `next_step`."""
        if self._record is None or answer.epoch != self._record.epoch or self.is_master:
            return None
        try:
            step = next_step(self._log.raw, answer)
        except ForeignLogError:
            self._damaged_at = self._log.raw.damaged_below(answer.common, answer.proven)
            if self._damaged_at is None:
                raise
            return None
        if step is FollowStep.FOLLOW:
            self._following = Following(self._log.follower, answer.epoch, now_ms)
        return step

    def take(self, frame: SegmentFrame | BytesFrame, now_ms: int) -> None:
        """A frame of the master. Raises as `Following`, and StaleEpochError when this broker does not follow."""
        if self._following is None:
            raise StaleEpochError(f"a frame of epoch {frame.epoch}: this broker does not follow")
        if isinstance(frame, SegmentFrame):
            self._following.take_segment(frame, now_ms)
        else:
            self._following.take_bytes(frame, now_ms)

    def tell(self, now_ms: int) -> StoredFrame | None:
        """The STORED to send at the end of a turn."""
        return None if self._following is None else self._following.report(now_ms)

    def shared_with(self, other: str) -> int:
        """Position below which this log and that of another broker are known to have the same bytes; 0: unknown.

        Only confirmed bytes count: a member that came to have others there would have lost what was acknowledged.
        """
        if self.is_master:
            shipment = self.shipments.get(other)
            return 0 if shipment is None else min(shipment.stored, self.confirmed.memory)
        return self.followed if other == self.master else 0

    def sync_frame(self) -> SyncFrame:
        """As the master, for slaves: tell once the log is synced up to here."""
        return SyncFrame(self.epoch, self._log.end_position)

    def unfollow(self) -> None:
        """The link to the master is closed, or the epoch is over: the master is not heard any more."""
        if self._following is not None:
            self._following.is_over = True
        self._following = None

    @property
    def following(self) -> Following | None:
        """The state that takes the master's frames; None: this broker does not follow."""
        return self._following

    @property
    def followed(self) -> int:
        """As a slave, the position up to which the master has confirmed what this log has."""
        return 0 if self._following is None else self._following.confirmed

    def begins_sync(self, now_ms: int) -> bool:
        """Whether this slave has left bytes unsynced for long enough; the caller begins a sync then."""
        if self._following is None or self._record is None:
            return False
        return self._following.begins_sync(now_ms, self._record.joining.get(self._name) == self._incarnation)

    @property
    def readable_to(self) -> int:
        """As a slave in the set, the position up to which clients may read here; 0: they may not read here now."""
        record = self._record
        if self._following is None or record is None or record.in_sync.get(self._name) != self._incarnation:
            return 0
        return self._following.confirmed

    @property
    def follows(self) -> bool:
        """Whether this slave takes frames of the master."""
        return self._following is not None

    # -- for the controllers

    def report(self, now_ms: int) -> BrokerReport:
        """As this broker is now."""
        log = self._log
        history, end = self._sound(self.torn_at)
        synced = self.confirmed.replicated_fsync if self.is_master else 0
        return BrokerReport(
            self._incarnation, self.version, log.log_id.hex(), history.point(end), history.point(synced),
            self._continues, self.confirmation.is_settled, self._hears(now_ms), self._followers(now_ms),
        )  # fmt: skip

    def signs(self, now_ms: int) -> Hashable:
        """What controllers decide by, of a report: without positions, which change all the time."""
        return (
            self._incarnation, self.version, self._log.log_id, self.confirmation.is_settled, self._hears(now_ms),
            tuple(self._states(now_ms)),
        )  # fmt: skip

    def _hears(self, now_ms: int) -> bool:
        return self._following is not None and self._following.silent_ms(now_ms) < SILENT_MS

    def _followers(self, now_ms: int) -> dict[str, FollowerReport]:
        end = self._log.end_position
        found: dict[str, FollowerReport] = {}
        for name, incarnation, is_lost, has_all in self._states(now_ms):
            shipment = self.shipments.get(name)
            gap = end if shipment is None else end - shipment.stored
            since_ms = self._log.raw.stored_at_ms(shipment.stored) if shipment is not None and gap else 0
            found[name] = FollowerReport(incarnation, gap, is_lost, has_all, since_ms)
        return found

    def _states(self, now_ms: int) -> Iterator[tuple[str, Incarnation, bool, bool]]:
        """Yield (name, incarnation, whether it is lost, whether it has all) of each slave; none, if this is no master."""
        if self._record is None or not self.is_master:
            return
        for name, since_ms in self._absent_ms.items():
            is_lost = now_ms - since_ms >= SILENT_MS
            yield name, self._record.awaited[name], is_lost, False
        for name, each in self.shipments.items():
            is_late = name in self._record.in_sync and each.is_late(now_ms)
            is_lost = each.is_silent(now_ms) or each.is_stalled(now_ms) or is_late
            yield name, each.incarnation, is_lost, self.confirmation.has_all(name)

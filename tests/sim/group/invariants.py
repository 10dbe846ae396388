"""What holds inside the brokers, checked where it can first break: before any client could see it.

A promise to clients is often broken only by a second fault at the right time. These are the reasons for which it holds, as
0030 and 0031 state them. They are judged by what machines have on their disks and by what processes had, not by what the
brokers say of themselves.
"""

from copy import copy
from typing import TYPE_CHECKING

from common.cluster.group_record import GroupRecord, LogPoint
from engine.broker.life import BrokerLife
from engine.link import layout
from engine.link.read import ReadAnswer
from engine.log.epochs import EpochHistory
from engine.log.format import BATCH_HEADER_SIZE, SEGMENT_HEADER_SIZE
from engine.log.segment.side_files import SIDE_SUFFIXES, SUFFIX, segment_bases
from engine.replication.shipment import SILENT_MS
from tests.sim.group.broker import GROUP, Broker
from tests.sim.group.ledger import NAME
from tests.sim.sent import Broken

if TYPE_CHECKING:
    from tests.sim.group.cluster import Cluster

Member = tuple[str, int]
"""Name and incarnation."""
DRIFT = 0.9
"""The fastest clock of a broker shows a time when this share of it has passed."""


class Invariants:
    """
    Attributes:
        stored: by process, the greatest end and durable position that its log ever had.
    """

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.stored: dict[Member, tuple[int, int]] = {}
        self._records: dict[int, GroupRecord] = {}
        self._newest: GroupRecord | None = None
        self._settles_at: dict[BrokerLife, int] = {}
        self._synced: dict[BrokerLife, int] = {}
        self._told = 0
        self._handed_over: dict[BrokerLife, int] = {}
        self._began_ms: dict[int, int] = {}
        self._linked: set[tuple[int, Member]] = set()  # epoch, and a slave that its master has shipped to

    def turn(self, broker: Broker, life: BrokerLife) -> None:
        """A broker's turn has ended."""
        assert broker.core is not None
        own, ends = (
            (broker.name, broker.core.incarnations.present),
            (life.appender.end_position, life.syncer.durable_position),
        )
        known = self.stored.get(own)
        if known is None:
            self.stored[own] = ends
        elif ends[0] > known[0] or ends[1] > known[1]:
            self.stored[own] = max(ends[0], known[0]), max(ends[1], known[1])
        if life.lead_at is not None:
            self._told = max(self._told, life.group.confirmed.memory)
            for name, shipment in life.group.shipments.items():
                self._linked.add((life.group.epoch, (name, shipment.incarnation)))

    def begins(self, broker: Broker, life: BrokerLife) -> None:
        """A broker leads in a new epoch. Its log is whole: a hole would be taken from those that follow it."""
        self._settles_at[life] = life.store.end_position
        self._began_ms[life.group.epoch] = self._cluster.world.now_ms
        if life.group.torn_at is not None:
            raise Broken(f"broker {broker.name} leads with a log that is torn at {life.group.torn_at}")

    def confirms(self, broker: Broker, life: BrokerLife, position: int) -> None:
        """A master shows what is below the position.

        Each process that its record names has had it; what counts as synced everywhere is on the disk of each. A lone
        master has first synced what it began with.
        """
        record = self._records[life.group.version]
        synced = life.group.confirmed.replicated_fsync
        if len(record.in_sync) == 1 and life.store.durable_position < self._settles_at[life]:
            raise Broken(f"broker {broker.name}, alone, confirms {position} before it has synced what it began with")
        has_grown = synced > self._synced.get(life, 0)
        self._synced[life] = synced
        for member in record.in_sync.items():
            end, durable = self.stored.get(member, (0, 0))
            if end < position and member[0] != broker.name:
                raise Broken(f"broker {broker.name} confirms {position}, and the process {member} never had it: {end}")
            if has_grown and durable < synced and member[0] != broker.name:
                raise Broken(f"broker {broker.name} counts {synced} as synced, and the process {member} has {durable}")

    def record_changed(self, version: int, record: GroupRecord) -> None:
        """The group has another record: who joins has on its disk what counts as synced, and the best log leads."""
        before, self._newest = self._newest, record
        self._records[version] = record
        for member in record.in_sync.items():
            durable = self.stored.get(member, (0, 0))[1]
            if before is not None and member in before.joining.items() and durable < record.floor.position:
                raise Broken(f"the process {member} joins, and its disk has {durable} of {record.floor.position}")
        if "reaches furthest" in record.reason:
            self._is_furthest(record)
        if before is not None and (record.master, record.in_sync[record.master]) in before.in_sync.items():
            for member in before.awaited.items() - {**record.in_sync, **record.joining}.items():
                self._had_time(before.epoch, member)

    def _had_time(self, epoch: int, member: Member) -> None:
        """A member leaves the set. A process that lives, and has not reached its new master yet, is given time for it."""
        core = self._cluster.brokers[member[0]].core
        if core is None or core.incarnations.present != member[1] or (epoch, member) in self._linked:
            return
        since_ms = self._cluster.world.now_ms - self._began_ms.get(epoch, 0)
        if since_ms < DRIFT * SILENT_MS:
            raise Broken(f"the process {member} lives, and is lost {since_ms} ms after epoch {epoch} has begun")

    def _is_furthest(self, record: GroupRecord) -> None:
        chosen = self._cluster.brokers[record.master]
        life = None if chosen.core is None else chosen.core.life
        if life is None or chosen.core is None or chosen.core.incarnations.present != record.in_sync[record.master]:
            return
        point = _whole_to(chosen, life)
        for name in record.before:
            broker = self._cluster.brokers[name]
            other = None if broker.core is None else broker.core.life
            if other is None or other.store.log_id != life.store.log_id:
                continue
            # It may have grown since its last report, by a copy that nobody waited for: above what was ever confirmed, or
            # by what is in its page cache only, where its disk is slower than the copy.
            reached = min(_whole_to(broker, other), history_of(broker, other).point(other.store.durable_position))
            if reached > point and self._told > point.position:
                raise Broken(f"broker {chosen.name} is chosen, whole up to {point}, and {name} is up to {reached}")

    def leaves(self, broker: Broker, op: int, code: int, payload: bytes, end: int) -> None:
        """A frame leaves a broker: of a master, once all is confirmed that its log had when the frame was made (`end`).

        A slave shows nothing that no master has confirmed.
        """
        life = None if broker.core is None else broker.core.life
        if life is not None and life.lead_at is not None and end > life.group.confirmed.memory:
            raise Broken(f"broker {broker.name} answers {op} of {end}; confirmed is {life.group.confirmed.memory}")
        if op != layout.READ or code != layout.OK or life is None or life.lead_at is not None:
            return
        with broker.env.observed():
            topics = {topic.name: topic.id for topic in life.store.topics()}
        index = life.appender.index
        for piece in ReadAnswer.decode(payload).pieces():
            found = NAME.search(piece.records)
            if found is None:
                continue
            at = index.locate(topics[found[1].decode()], piece.queue, piece.first_offset + piece.count - 1)
            if at is not None and index.base + at >= self._told:
                raise Broken(
                    f"slave {broker.name} shows {found[2].decode()} at {index.base + at}; confirmed is {self._told}"
                )

    def cuts(self, broker: Broker, position: int) -> None:
        """A broker cuts its log to follow: there, its master has something else, or nothing.

        Or its start could not read what it has there, which a disk may read again by now: its index lacks that.
        """
        assert broker.core is not None and broker.core.group is not None and broker.core.life is not None
        if any(each.position == position for each in broker.core.life.store.damage):
            return
        master = self._cluster.brokers.get(broker.core.group.master)
        if master is None or master is broker or master.core is None or master.core.life is None:
            return
        end = min(broker.core.life.store.end_position, master.core.life.store.end_position)
        size = int.from_bytes(_bytes_at(broker, position, BATCH_HEADER_SIZE)[4:8], "little")
        own, other = _bytes_at(broker, position, size), _bytes_at(master, position, size)
        if size and position + size <= end and own == other:
            raise Broken(f"broker {broker.name} cuts its log at {position}, where {master.name} has the same")

    def handed_over(self, broker: Broker) -> None:
        """A master has told an operator's command that the record may be changed: all members have all that it has."""
        assert broker.core is not None and broker.core.life is not None
        life = broker.core.life
        end = self._handed_over[life] = life.store.end_position
        for member in self._records[life.group.version].in_sync.items():
            durable = self.stored.get(member, (0, 0))[1]
            if member[0] != broker.name and durable < end:
                raise Broken(f"broker {broker.name} has handed over at {end}, and the process {member} has {durable}")

    def follows_on(self, broker: Broker, life: BrokerLife) -> None:
        """A replaced master follows without opening its log again: it has handed over, and appended nothing since."""
        end = life.store.end_position
        if self._handed_over.get(life) != end:
            raise Broken(
                f"broker {broker.name} follows on with its log of {end}; handed over at {self._handed_over.get(life)}"
            )

    def links(self, broker: Broker) -> None:
        """A broker's turn has ended, in which a link was authenticated: a lane has no other link that is open."""
        states = [each.peer_state for each in broker.peers]
        lanes = [each.lane for each in states if each.authenticated and each.lane]
        if len(lanes) > len(set(lanes)):
            raise Broken(f"broker {broker.name} takes from two links of one lane: {sorted(lanes)}")

    def was_cut(self, broker: Broker, position: int) -> None:
        """A log was opened that an order has cut: nothing is left of what was above, nor of what was made from it.

        Nor does it count as the log of an earlier process that had more.
        """
        assert broker.core is not None
        for each in broker.core.incarnations.continues:
            if self.stored.get((broker.name, each), (0, 0))[0] > position:
                raise Broken(
                    f"broker {broker.name} was cut at {position}, and its log passes for that of process {each}"
                )
        folder = f"{broker.directory}/log/"
        files = {path.removeprefix(folder): each for path, each in broker.env.files.items() if path.startswith(folder)}
        bases = segment_bases(files)
        cut = max(base for base in bases if base + SEGMENT_HEADER_SIZE <= position)
        for base in bases:
            start = position - cut if base == cut else SEGMENT_HEADER_SIZE
            if base >= cut and bytes(files[f"{base:020d}{SUFFIX}"].seen[start:]).strip(b"\0"):
                raise Broken(f"broker {broker.name} was cut at {position}, and has bytes above in segment {base}")
        left = [name for name in files if name.endswith(SIDE_SUFFIXES) and int(name[:20]) >= cut]
        if left and bases[-1] == cut:
            raise Broken(f"broker {broker.name} was cut at {position}, and {left} was made from what was above")

    def version(self) -> int:
        """Of the newest record."""
        found = self._cluster.server.record(GROUP)
        return 0 if found is None else found.version


def history_of(broker: Broker, life: BrokerLife) -> EpochHistory:
    """The epochs of a log, by a copy of what reads them: the broker meets the faults of its own reading."""
    with broker.env.observed():
        return copy(life.store.epochs).history()


def _whole_to(broker: Broker, life: BrokerLife) -> LogPoint:
    """How far a log reaches without a hole."""
    history, end = history_of(broker, life), life.store.end_position
    if life.group.torn_at is not None:
        end = life.group.torn_at
        history.cut(end)
    return history.point(end)


def _bytes_at(broker: Broker, position: int, size: int) -> bytes:
    """Bytes of the log, within one segment."""
    files = {
        int(path.rpartition("/")[2][:-4]): file
        for path, file in broker.env.files.items()
        if path.startswith(f"{broker.directory}/log/") and path.endswith(".seg")
    }
    base = max((base for base in files if base <= position), default=None)
    return b"" if base is None else bytes(files[base].seen[position - base : position - base + size])

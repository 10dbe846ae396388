"""Confirmed positions: how far a master may answer and show its log. Design: docs/design/0030-replication.md.

A master waits for every member that the record it has adopted names, however slow, silent or dead the member is: only a
later record stops that. So what is confirmed is on all members that can be promoted.
"""

from typing import NamedTuple

from common.cluster.group_record import GroupRecord, Incarnation


class StoredEnd(NamedTuple):
    """The latest report of a slave.

    Attributes:
        end: bytes below are written there.
        synced: bytes below are on its disk.
    """

    incarnation: Incarnation
    end: int
    synced: int


class Confirmed(NamedTuple):
    """Positions up to which answers of each class, and readers, may go. They never fall under one epoch.

    Attributes:
        memory: also the limit of all readers.
        fsync, replicated, replicated_fsync: at most `memory`.
    """

    memory: int
    fsync: int
    replicated: int
    replicated_fsync: int


NOTHING = Confirmed(0, 0, 0, 0)


class Confirmation:
    """The confirmed positions of a master, from its own progress and from what its slaves tell.

    One object serves while the broker's log only grows. One that has been cut needs another.

    Args:
        name: of this broker.
    Attributes:
        confirmed: the positions now; what they were last while no record names this broker as master.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._end = self._synced = 0
        self._record: GroupRecord | None = None
        self._awaited: dict[str, Incarnation] = {}  # members of the record that this broker waits for
        self._is_lone = False
        self._adopted_at = self._settled_at = 0
        self._stored: dict[str, StoredEnd] = {}
        self.confirmed = NOTHING

    @property
    def is_settled(self) -> bool:
        """Whether all that this broker had when it became master of its epoch is synced."""
        return self._record is not None and self._synced >= self._settled_at

    def has_all(self, member: str) -> bool:
        """Whether a member has, on its disk, what was written when the present record was adopted: it may become in sync.

        On its disk, because the record's floor is what all members have synced.
        """
        stored = self._stored_of(member)
        return stored is not None and stored.synced >= self._adopted_at

    def adopt(self, record: GroupRecord) -> Confirmed:
        """Wait for the members of this record from now on. One that names another master stops all confirmation."""
        if record.master != self._name:
            self._record = None
            return self.confirmed
        self._awaited, self._is_lone = record.awaited, len(record.in_sync) == 1
        if self._record is None or record.epoch != self._record.epoch:
            self._settled_at = self._end
        self._record, self._adopted_at = record, self._end
        return self._advance()

    def written(self, end: int) -> Confirmed:
        """This broker has written up to `end`."""
        self._end = max(self._end, end)
        return self.confirmed if self._awaited else self._advance()  # what members lack stays unconfirmed

    def synced(self, position: int) -> Confirmed:
        """This broker's disk has what is below the position."""
        if position <= self._synced:
            return self.confirmed
        self._synced = position
        return self._advance()

    def stored(self, member: str, told: StoredEnd) -> Confirmed:
        """A slave has told what it has. A process that has restarted is another member."""
        self._stored[member] = told
        return self._advance()

    def _stored_of(self, member: str) -> StoredEnd | None:
        """The latest report of a member of the record; None: there is none, or it is of another process."""
        stored = self._stored.get(member)
        if stored is None or self._record is None or stored.incarnation != self._awaited.get(member):
            return None
        return stored

    def _advance(self) -> Confirmed:
        if self._record is None or (self._is_lone and not self.is_settled):
            return self.confirmed
        end, synced = self._end, self._synced
        for member in self._awaited:
            stored = self._stored_of(member)
            if stored is None:
                return self.confirmed
            end, synced = min(end, stored.end), min(synced, stored.synced)
        own, before = min(end, self._synced), self.confirmed
        now = end, own, own if self._is_lone else end, min(own, synced)
        if now != before:
            self.confirmed = Confirmed._make(map(max, now, before))
        return self.confirmed

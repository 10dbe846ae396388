# cython: annotation_typing=False
"""Confirmed positions: how far a master may answer and show its log. Design: docs/design/0030-replication.md.

A master waits for every member that the record it has adopted names, however slow, silent or dead the member is: only a
later record stops that. So what is confirmed is on all members that can be promoted.
"""

from common.cluster.group_record import GroupRecord, Incarnation
from engine.replication.positions import Confirmed


class _Stored:
    """The latest report of a member: bytes below `end` are written there, those below `synced` on its disk."""

    __slots__ = ("end", "incarnation", "synced")

    def __init__(self, incarnation: Incarnation, end: int, synced: int) -> None:
        self.incarnation, self.end, self.synced = incarnation, end, synced


class Confirmation:
    """The confirmed positions of a master, from its own progress and from what its slaves tell.

    One object serves while the broker's log only grows. One that has been cut needs another.

    Args:
        name: of this broker.
    Attributes:
        memory, fsync, replicated, replicated_fsync: the positions of `confirmed`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._end = self._synced = 0
        self._record: GroupRecord | None = None
        self._awaited: dict[str, Incarnation] = {}  # members of the record that this broker waits for
        self._is_lone = False
        self._adopted_at = self._settled_at = 0
        self._stored: dict[str, _Stored] = {}
        self.memory = self.fsync = self.replicated = self.replicated_fsync = 0

    @property
    def confirmed(self) -> Confirmed:
        """The positions now; what they were last while no record names this broker as master."""
        return Confirmed(self.memory, self.fsync, self.replicated, self.replicated_fsync)

    @property
    def is_settled(self) -> bool:
        """Whether all is synced that this broker had when it became master of its epoch, or lost a member of the set."""
        return self._record is not None and self._synced >= self._settled_at

    def has_all(self, member: str) -> bool:
        """Whether a member has, on its disk, what was written when the present record was adopted: it may become in sync.

        On its disk, because the record's floor is what all members have synced.
        """
        stored = self._stored_of(member)
        return stored is not None and stored.synced >= self._adopted_at

    def adopt(self, record: GroupRecord) -> bool:
        """Wait for the members of this record from now on. One that names another master stops all confirmation.

        This and the other steps return whether more is confirmed now.
        """
        if record.master != self._name:
            self._record = None
            return False
        self._awaited, self._is_lone = record.awaited, len(record.in_sync) == 1
        known = self._record
        if known is None or record.epoch != known.epoch or record.before.keys() - known.before.keys():
            self._settled_at = self._end
        self._record, self._adopted_at = record, self._end
        return self._advance()

    def advance(self, end: int, synced: int) -> bool:
        """The log has grown up to `end`, or was synced."""
        is_more = self.written(end)
        return self.synced(synced) or is_more

    def written(self, end: int) -> bool:
        """This broker has written up to `end`."""
        self._end = max(self._end, end)
        return not self._awaited and self._advance()  # what members lack stays unconfirmed

    def synced(self, position: int) -> bool:
        """This broker's disk has what is below the position."""
        if position <= self._synced:
            return False
        self._synced = position
        return self._advance()

    def stored(self, member: str, incarnation: Incarnation, end: int, synced: int) -> bool:
        """A slave has told what it has. A process that has restarted is another member."""
        stored = self._stored.get(member)
        if stored is None or stored.incarnation != incarnation:
            self._stored[member] = _Stored(incarnation, end, synced)
        else:
            stored.end, stored.synced = end, synced
        return self._advance()

    def _stored_of(self, member: str) -> _Stored | None:
        """The latest report of a member of the record; None: there is none, or it is of another process."""
        stored = self._stored.get(member)
        if stored is None or self._record is None or stored.incarnation != self._awaited.get(member):
            return None
        return stored

    def _advance(self) -> bool:
        if self._record is None or (self._is_lone and not self.is_settled):
            return False
        end, synced = self._end, self._synced
        for member in self._awaited:
            stored = self._stored_of(member)
            if stored is None:
                return False
            end, synced = min(end, stored.end), min(synced, stored.synced)
        own = min(end, self._synced)
        return self._raise(end, own, own if self._is_lone else end, min(own, synced))

    def _raise(self, memory: int, fsync: int, replicated: int, replicated_fsync: int) -> bool:
        """Raise the positions that are lower; none falls."""
        is_more = memory > self.memory or fsync > self.fsync
        is_more = is_more or replicated > self.replicated or replicated_fsync > self.replicated_fsync
        if is_more:
            self.memory, self.fsync = max(self.memory, memory), max(self.fsync, fsync)
            self.replicated = max(self.replicated, replicated)
            self.replicated_fsync = max(self.replicated_fsync, replicated_fsync)
        return is_more

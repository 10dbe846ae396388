# cython: annotation_typing=False
"""Output commit: what a link shows of the log leaves once it is confirmed. Design: docs/design/0030-replication.md."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.link.proof import CONTROLLER_ROLE, REPLICA_ROLE
from engine.ops.peer import PeerState

UNHELD_ROLES = frozenset({REPLICA_ROLE, CONTROLLER_ROLE})
"""Roles of links on which confirmation depends: their output would wait for itself."""
_DROPPED_MIN = 64
"""Entries of closed connections that are kept at least: fewer are not worth a search for them."""


class HeldOutput(Protocol):
    """A connection whose output is held."""

    def release(self, position: int) -> None:
        """Let output leave up to this position. Does nothing once the connection is closed."""


class _Holder:
    """The entries of one connection. They share it, so that a closed connection is forgotten at once."""

    __slots__ = ("count", "last", "peer")

    def __init__(self, peer: HeldOutput) -> None:
        self.peer: HeldOutput | None = peer
        self.count = 0
        self.last: _Entry | None = None


class _Entry:
    """Output of a connection up to `queued`; it shows at most the log below `end`."""

    __slots__ = ("end", "holder", "queued")

    def __init__(self, end: int, holder: _Holder, queued: int) -> None:
        self.end, self.holder, self.queued = end, holder, queued


class OutputHold:
    """Notes the log's end at each flush of output, and releases the output once that end is confirmed.

    A flush may show anything that the log has at that time, so nothing has to know what the frames contain. The log's
    end never falls, so one queue over all connections is in the order in which its entries are confirmed.

    Args:
        end: the end of what an answer can show now, which is the log's.

    Attributes:
        confirmed: what lies below this position of the log may be shown.
    """

    def __init__(self, end: Callable[[], int]) -> None:
        self._end = end
        self.confirmed = 0
        self._entries: deque[_Entry] = deque()
        self._holders: dict[object, _Holder] = {}  # by connection
        self._dropped = 0  # entries of closed connections

    def __len__(self) -> int:
        """Number of entries, those of closed connections included."""
        return len(self._entries)

    @property
    def links(self) -> int:
        """Number of open connections whose output is held."""
        return len(self._holders)

    def note(self, peer: HeldOutput, queued: int) -> bool:
        """Note output that leaves this turn, up to the position `queued`.

        Returns whether it may leave now. Otherwise it is held, and `confirm()` releases it.
        """
        end = self._end()
        holder = self._holders.get(peer)
        if holder is None:
            if end <= self.confirmed:
                return True
            holder = self._holders[peer] = _Holder(peer)
        elif holder.last is not None and holder.last.end == end:
            holder.last.queued = queued
            return False
        holder.last = entry = _Entry(end, holder, queued)
        holder.count += 1
        self._entries.append(entry)
        return False

    def confirm(self, position: int) -> None:
        """Release what shows the log up to this position only. A lower position than before changes nothing."""
        self.confirmed = max(self.confirmed, position)
        entries = self._entries
        while entries and entries[0].end <= self.confirmed:
            entry = entries.popleft()
            holder = entry.holder
            if holder.peer is None:
                self._dropped -= 1
                continue
            holder.count -= 1
            if not holder.count:
                del self._holders[holder.peer]
            holder.peer.release(entry.queued)

    def drop(self, peer: object) -> None:
        """Forget a closed connection. Its entries go at the latest when they are half of all."""
        holder = self._holders.pop(peer, None)
        if holder is None:
            return
        holder.peer = holder.last = None
        self._dropped += holder.count
        if self._dropped > max(_DROPPED_MIN, len(self._entries) // 2):
            self._entries = deque(each for each in self._entries if each.holder.peer is not None)
            self._dropped = 0


def hold_of(hold: OutputHold | None, state: PeerState) -> OutputHold | None:
    """Return what holds the output of a peer that has just authenticated, if anything does, and mark its state.

    Args:
        hold: of the peer's node.
    """
    found = None if state.role in UNHELD_ROLES else hold
    state.is_held = found is not None
    return found

"""What every store of the fallback buffer can do. Siblings: memory_store, disk/, redis/."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from gevent.event import Event

from producer_proxy.buffer.entry import Entry
from producer_proxy.buffer.ordering_keys import Units
from producer_proxy.buffer.room import Room, RoomLimits


class Kept(NamedTuple):
    """An entry in a store; `handle` is the store's own way to find it again."""

    handle: Any
    entry: Entry


class Stats(NamedTuple):
    """
    Attributes:
        buried: entries on the dead-letter list.
        damaged: entries or stretches that could not be read and were reported.
        fault: why nothing can be stored now; None: it can.
        warning: what an operator has allowed by name and should know; None: nothing.
    """

    entries: int
    bytes: int
    oldest_at_ms: int | None
    buried: int
    damaged: int
    fault: str | None
    warning: str | None


class Store(ABC):
    """Entries that wait for the engine, oldest first. All methods belong to the loop's thread; those that say so block their greenlet.

    Attributes:
        name: for metrics and messages.
        units: which keys have entries here. A key enters before its first entry is written and leaves when its last is removed.
        filled: set when there may be something to take.
    """

    name: str
    damaged = 0
    buried = 0

    def __init__(self, limits: RoomLimits, now_ms: Callable[[], int]) -> None:
        self.units = Units()
        self.room = Room(limits, now_ms)
        self.now_ms = now_ms
        self.filled = Event()

    def put(self, entries: Sequence[Entry]) -> None:
        """Store all of them or none, durably on return. Blocks.

        Raises:
            BufferFull, BufferUnavailable: nothing was stored. BufferUncertain: it may be.
        """
        self.room.check(entries, self.oldest_at_ms())
        self._enter(entries)
        try:
            self._write(entries)
        except BaseException:
            self._leave_unwritten(entries)
            raise
        self.filled.set()

    def remove(self, kept: Sequence[Kept]) -> None:
        """The engine has them: delete. May block. A crash before the deletion is durable gives them out again.

        Raises:
            BufferUnavailable: they stay, and will be given out again.
        """
        self._delete(kept)
        self._leave([each.entry for each in kept])

    def bury(self, kept: Sequence[Kept], reason: str) -> None:
        """The engine will never take them: move them to the dead-letter list, durably. Blocks. Raises BufferFull, BufferUnavailable."""
        self._bury(kept, reason)
        self.buried += len(kept)
        self.remove(kept)

    def stats(self) -> Stats:
        return Stats(
            self.room.entries, self.room.bytes, self.oldest_at_ms(), self.buried, self.damaged, self.fault(), self.warning()
        )  # fmt: skip

    def found(self, entries: Sequence[Entry]) -> None:
        """For stores that open with a backlog."""
        self._enter(entries)
        if entries:
            self.filled.set()

    def recounted(self, units: Units, room: Room) -> None:
        """For stores that have counted anew what they hold."""
        self.units.become(units)
        self.room = room
        if room.entries:
            self.filled.set()

    def _enter(self, entries: Sequence[Entry]) -> None:
        self.units.enter(entries)
        self.room.enter(entries)

    def _leave(self, entries: Sequence[Entry]) -> None:
        self.units.leave(entries)
        self.room.leave(entries)

    def _leave_unwritten(self, entries: Sequence[Entry]) -> None:
        """What could not be written counts no more."""
        self._leave(entries)

    @abstractmethod
    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[Kept]:
        """The oldest entries, each topic's in order, without those of the topics in `skip`. The first is given whatever its size.

        They stay where they are. May block. Raises BufferUnavailable. A store whose topics share a sequence may give only what stands
        before the first that is skipped.
        """

    @abstractmethod
    def oldest_at_ms(self) -> int | None:
        """When the oldest entry was accepted; None when there is none."""

    def fault(self) -> str | None:
        """Why nothing can be stored now."""
        return None

    def warning(self) -> str | None:
        """What holds less than it should, because somebody said so."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections; entries stay."""

    @abstractmethod
    def _write(self, entries: Sequence[Entry]) -> None: ...

    @abstractmethod
    def _delete(self, kept: Sequence[Kept]) -> None: ...

    @abstractmethod
    def _bury(self, kept: Sequence[Kept], reason: str) -> None: ...

"""The interface of the fallback buffer's stores. Siblings: memory_store, disk/, redis/."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from gevent.event import Event

from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferError_, BufferFull
from producer_proxy.buffer.ordering_keys import OrderingKeys
from producer_proxy.buffer.room import Room, RoomLimits

REFUSED_MS = 60_000
"""Time for which a put that the disk or Redis refused is told, if none succeeds: whether there is room again is not known."""


class KeptEntry(NamedTuple):
    """An entry in a store; `handle` identifies it there."""

    handle: Any
    entry: BufferEntry


class BufferStats(NamedTuple):
    """State of a store.

    Attributes:
        dead: entries on the dead-letter list.
        undeleted: entries that the engine has and that the store could not delete yet; after a restart they are sent again.
        damaged: entries or byte ranges that could not be read and were reported.
        fault: why nothing can be stored now; None: it can.
        refusal: why messages are refused, though the store works; None: they are not.
        warning: the store's weaknesses that an operator has allowed by name; None without any.
    """

    entries: int
    bytes: int
    oldest_at_ms: int | None
    dead: int
    undeleted: int
    damaged: int
    fault: str | None
    refusal: str | None
    warning: str | None


class BufferStore(ABC):
    """Entries that wait for the engine, oldest first.

    All methods are for the loop's thread. Methods block their greenlet only where documented.

    Attributes:
        name: for metrics and messages.
        ordering_keys: keys with entries here. A key enters before its first entry is written and leaves when its last
            is removed.
        filled: set when there may be something to take.
        on_known: called when `awaits` ends for some topics.
    """

    name: str
    damaged = 0

    def __init__(self, limits: RoomLimits, now_ms: Callable[[], int]) -> None:
        self.ordering_keys = OrderingKeys()
        self.room = Room(limits, now_ms)
        self.now_ms = now_ms
        self.filled = Event()
        self.on_known: Callable[[], None] = lambda: None
        self._unfit: Sequence[BufferEntry] = ()  # of the last put that found no room
        self._refused: tuple[str, int] | None = None  # sentence and time of the last put, if it could not be written

    def put(self, entries: Sequence[BufferEntry]) -> None:
        """Store all of them or none, durably on return. Blocks.

        Raises:
            BufferFull, BufferUnavailable: nothing was stored. BufferUncertain: it may be.
        """
        try:
            self.room.check(entries, self.oldest_at_ms())
        except BufferFull:
            self._unfit = entries
            raise
        self._enter(entries)
        try:
            self._write(entries)
        except BaseException as error:
            self._leave_unwritten(entries)
            if isinstance(error, BufferError_) and not self.fault():
                self._refused = str(error), self.now_ms()
            raise
        self._refused = None
        self.filled.set()

    def remove(self, kept: Sequence[KeptEntry]) -> None:
        """Delete entries that the engine has, or that are on the dead-letter list. May block.

        They leave the buffer also when the store refuses the deletion, which it then repeats by itself: `undeleted`.
        After a crash before the deletion is durable, `take` returns them again.
        """
        self._leave([each.entry for each in self._delete(kept)])

    def dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None:
        """Move entries that the engine will never take to the dead-letter list, durably.

        Blocks. Raises BufferFull, BufferUnavailable.
        """
        self._dead_letter(kept, reason)
        self.remove(kept)

    def awaits(self, topic: str) -> bool:
        """Whether earlier entries of the topic may be there that do not count here: not yet, or another proxy drains them."""
        return False

    @property
    def undeleted(self) -> int:
        """Number of entries that have left the buffer and that the store could not delete yet."""
        return 0

    @property
    def dead_count(self) -> int:
        """Number of entries on the dead-letter list."""
        return 0

    def stats(self) -> BufferStats:
        return BufferStats(
            self.room.entries, self.room.bytes, self.oldest_at_ms(), self.dead_count, self.undeleted, self.damaged, self.fault(),
            self.refusal(), self.warning(),
        )  # fmt: skip

    def found(self, entries: Sequence[BufferEntry]) -> None:
        """For stores that open with a backlog."""
        self._enter(entries)
        if entries:
            self.filled.set()

    def recounted(self, ordering_keys: OrderingKeys, room: Room) -> None:
        """For stores that have counted their entries again."""
        self.ordering_keys.become(ordering_keys)
        self.room = room
        if room.entries:
            self.filled.set()

    def _enter(self, entries: Sequence[BufferEntry]) -> None:
        self.ordering_keys.enter(entries)
        self.room.enter(entries)

    def _leave(self, entries: Sequence[BufferEntry]) -> None:
        self.ordering_keys.leave(entries)
        self.room.leave(entries)

    def _leave_unwritten(self, entries: Sequence[BufferEntry]) -> None:
        """Stop counting entries that could not be written."""
        self._leave(entries)

    @abstractmethod
    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        """The oldest entries, in order per topic, without the topics in `skip`. They stay in the store.

        The first entry is returned whatever its size. A store whose topics share a sequence may return only the entries
        before the first skipped one. May block. Raises BufferUnavailable.
        """

    @abstractmethod
    def oldest_at_ms(self) -> int | None:
        """The time at which the oldest entry was accepted; None without entries."""

    def fault(self) -> str | None:
        """The reason why nothing can be stored now; None: the store works."""
        return None

    def refusal(self) -> str | None:
        """The reason why the last messages were refused, though the store works; None: there is room for them, or may be."""
        try:
            self.room.check(self._unfit if self.room.entries else (), self.oldest_at_ms())
        except BufferFull as error:
            return str(error)
        self._unfit = ()
        if self._refused is not None and self.now_ms() - self._refused[1] >= REFUSED_MS:
            self._refused = None
        return self._refused and self._refused[0]

    def warning(self) -> str | None:
        """The store's weaknesses that an operator has allowed by name; None without any."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; entries stay."""

    @abstractmethod
    def _write(self, entries: Sequence[BufferEntry]) -> None: ...

    @abstractmethod
    def _delete(self, kept: Sequence[KeptEntry]) -> Sequence[KeptEntry]:
        """Delete entries; returns those that leave the count now. The others leave it by a new count."""

    @abstractmethod
    def _dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None: ...

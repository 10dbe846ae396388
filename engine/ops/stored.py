"""Answers to appends: which disks and members each durability class waits for. Table: docs/design/0030-replication.md."""

from collections.abc import Callable
from typing import Protocol

from engine.link import layout

WhenDurable = Callable[[int, Callable[[], None]], None]


class SyncedLog(Protocol):
    """The log that is appended to."""

    @property
    def when_durable(self) -> WhenDurable: ...


class StoredWaits:
    """The waits of one node. Without other members, the replicated classes wait for the node's own disk.

    What is confirmed is not its matter: output that shows more is held.

    Attributes:
        is_replicated: whether other members have all that is confirmed: REPLICATED waits for no disk then.
        when_everywhere: calls back once bytes below a position are on the disks of all members; None: there are none.
    """

    def __init__(self, store: SyncedLog) -> None:
        self._store = store
        self.is_replicated = False
        self.when_everywhere: WhenDurable | None = None
        self._waiting = 0

    def waits(self, durability: int) -> bool:
        """Whether an answer of this class waits for a disk."""
        return durability != layout.MEMORY and not (durability == layout.REPLICATED and self.is_replicated)

    def when(self, position: int, callback: Callable[[], None], everywhere: bool) -> None:
        """Call back once bytes below the position are on this node's disk, or on those of all members.

        Callbacks keep their order: one waits for all members while an earlier one does.
        """
        if self.when_everywhere is None or not (everywhere or self._waiting):
            self._store.when_durable(position, callback)
            return

        def done() -> None:
            self._waiting -= 1
            callback()

        self._waiting += 1
        self.when_everywhere(position, done)

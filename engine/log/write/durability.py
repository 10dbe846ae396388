"""Durability: the synced position, and callbacks once given bytes are synced."""

from collections.abc import Callable
from functools import partial

from engine.log.segment.segments import LogSegments
from engine.log.write.native import Appender
from engine.log.write.prefill import Prefill
from engine.log.write.syncer import Syncer


class Durability:
    """Positions of the log's end, and waiting for them.

    Two positions exist on one node: `end_position` (bytes below are in the page cache and readable) and
    `durable_position` (bytes below are synced here). A replicated log adds a third, the confirmed position: bytes
    below are on all nodes that a master waits for.

    Attributes:
        syncer: knows the synced position first; for what asks for it in every turn.
        when_confirmed: calls back once bytes below a position are confirmed; None: there are no other nodes.
    """

    when_confirmed: Callable[[int, Callable[[], None]], None] | None = None

    def __init__(self, appender: Appender, segments: LogSegments, syncer: Syncer) -> None:
        self._appender, self._segments, self.syncer = appender, segments, syncer
        self._prefill = Prefill()

    @property
    def end_position(self) -> int:
        """Bytes below are in the page cache and readable."""
        return self._appender.end_position

    @property
    def durable_position(self) -> int:
        """Bytes below are synced."""
        return self.syncer.durable_position

    def when_durable(self, position: int, callback: Callable[[], None]) -> None:
        """Call `callback()` once all bytes below `position` are synced: at once when they are, else from the loop.

        With replicas they have to be confirmed, too.
        """
        if self.when_confirmed is not None:
            callback = partial(self.when_confirmed, position, callback)
        self.when_synced(position, callback)

    def when_synced(self, position: int, callback: Callable[[], None]) -> None:
        """As `when_durable`, by this node alone."""
        end_position = self._appender.end_position
        if position > self.syncer.durable_position:
            self._prefill.extend(self._segments.active, end_position)
        self.syncer.when_durable(position, end_position, callback)

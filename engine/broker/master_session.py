"""One connection of a slave to its master, without its socket: frames in, frames out.

The slave asks from where on it may follow, takes the bytes, and tells what it has. An error of a method, and `is_over`,
end the connection; another one begins with a new session.
"""

from collections.abc import Callable
from typing import Protocol

from engine.link import layout
from engine.link.errors import LinkError
from engine.log.format import SEGMENT_HEADER_SIZE
from engine.replication.broker import GroupBroker
from engine.replication.follow import FollowStep
from engine.replication.frames import BytesFrame, Fetch, Follow, Followed, SegmentFrame, SyncFrame
from engine.replication.native import Following

DIAL_S = 1.0
"""A connection that brings nothing for so long has ended."""
PAUSE_S, PAUSE_S_MAX = 0.02, 1.0
"""Between two tries. The master may be about to adopt the record, too."""
ASKED_ID = 1
"""Request id of the only question that is open."""


class FollowingBroker(Protocol):
    """The slave that follows."""

    @property
    def group(self) -> GroupBroker | None:
        """None: it has no log yet."""

    def first_follow(self) -> Follow:
        """The FOLLOW of a broker without a log."""

    def make_log(self, header: bytes) -> None:
        """Make a log that begins with a segment of this header, and open it."""

    def cut_log(self, position: int) -> None:
        """Have the log cut at a position, and opened again. Ends this connection."""

    def renew_log(self) -> None:
        """Have the log put aside, since it cannot be continued (FollowStep.FETCH). Ends this connection."""

    def sync_soon(self, on_synced: Callable[[], None]) -> None:
        """Sync the log; `on_synced()` is called from the loop."""

    def told(self) -> None:
        """Report to the controllers if something has changed that they decide by."""


class MasterSession:
    """From `begin()` on, once the connection is authenticated, to `end()`.

    Args:
        now_ms: the monotonic clock.
        tell_soon: called from the loop when `tell()` has news between two frames.
    Attributes:
        follows: the slave takes bytes.
        is_over: there is nothing more to do on this connection, and another one continues.
    """

    def __init__(self, broker: FollowingBroker, now_ms: Callable[[], int], tell_soon: Callable[[], None]) -> None:
        self._broker, self._now_ms, self._tell_soon = broker, now_ms, tell_soon
        self._asked = layout.FOLLOW
        self._had_log = False
        self.follows = self.is_over = False

    def begin(self) -> bytes:
        """The first frame to send."""
        group = self._broker.group
        self._had_log = group is not None
        asked = self._broker.first_follow() if group is None else group.ask()
        return layout.frame(layout.FOLLOW, ASKED_ID, asked.encode())

    def take(self, op: int, code: int, payload: bytes) -> bytes:
        """A frame of the master; returns what to send now. Blocks for the disk.

        Raises:
            LinkError: with the sentence of a refusal, or the frame is not one of a master.
            LogError, OSError: the slave cannot follow.
        """
        if code != layout.OK:
            raise LinkError(payload.decode("utf-8", "replace"))
        if self.follows:
            self._take_frame(op, payload)
            return b""
        if op != self._asked:
            raise LinkError(f"the answer to operation {self._asked} is a frame of operation {op}")
        if op == layout.FETCH:
            self._broker.make_log(payload)
            self.is_over = True
            return b""
        return self._answered(Followed.decode(payload))

    def tell(self) -> bytes:
        """The STORED to send at the end of a turn; empty: there is no news."""
        group = self._broker.group
        stored = group.tell(self._now_ms()) if group is not None and self.follows else None
        return b"" if stored is None else layout.frame(layout.STORED, layout.UNASKED, stored.encode())

    @property
    def following(self) -> Following | None:
        """The state that takes the master's frames of bytes and makes the reports to it; None: the slave does not follow."""
        return None if self._broker.group is None else self._broker.group.following

    def end(self) -> None:
        """The connection has ended: the master is not heard any more."""
        self.follows = False
        if self._broker.group is not None:
            self._broker.group.unfollow()
        self._broker.told()

    def _answered(self, answer: Followed) -> bytes:
        group = self._broker.group
        if group is None or not self._had_log:
            self._asked = layout.FETCH
            asked = Fetch(answer.first - SEGMENT_HEADER_SIZE, 0, SEGMENT_HEADER_SIZE)
            return layout.frame(layout.FETCH, ASKED_ID, asked.encode())
        step = group.answered(answer, self._now_ms())
        self.follows, self.is_over = step is FollowStep.FOLLOW, step is not FollowStep.FOLLOW
        if step is FollowStep.TRUNCATE:
            self._broker.cut_log(answer.common)
        elif step is FollowStep.FETCH:
            self._broker.renew_log()
        self._broker.told()
        return b""

    def _take_frame(self, op: int, payload: bytes) -> None:
        group = self._broker.group
        if group is None:
            raise LinkError("this broker has no log any more")
        if op == layout.BYTES:
            group.take(BytesFrame.decode(payload), self._now_ms())
        elif op == layout.SEGMENT:
            group.take(SegmentFrame.decode(payload), self._now_ms())
        elif op == layout.SYNC:
            SyncFrame.decode(payload)
            self._broker.sync_soon(self._tell_soon)
        else:
            raise LinkError(f"a frame of operation {op}: a master sends none")

"""A slave's link to its master: dials, asks from where on it may follow, takes the bytes, tells what it has."""

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import gevent
from gevent import socket as gevent_socket
from gevent.lock import BoundedSemaphore

from common.limited_log import LimitedLog
from engine.client.dial import dial
from engine.errors import LogError
from engine.link import layout
from engine.link.errors import LinkError
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE
from engine.link.proof import REPLICA_ROLE
from engine.log.format import SEGMENT_HEADER_SIZE
from engine.replication.broker import GroupBroker
from engine.replication.follow import FollowStep
from engine.replication.frames import BytesFrame, Fetch, Follow, Followed, SegmentFrame, SyncFrame

limited = LimitedLog(logging.getLogger("penstock.engine"))

DIAL_S = 1.0
READ_BYTES = 1 << 20
PAUSE_S = 0.02
"""Between two tries. The master may be about to adopt the record, too."""
PAUSE_S_MAX = 1.0
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
        """Have the log cut at a position, and opened again. Ends this link."""

    def sync_soon(self, on_synced: Callable[[], None]) -> None:
        """Sync the log; `on_synced()` is called from the loop."""

    def told(self) -> None:
        """Report to the controllers if something has changed that they decide by."""


class MasterLink:
    """Follows one master until `close()`.

    Args:
        name: of this broker.
        now_ms: the monotonic clock.
    """

    def __init__(
        self, broker: FollowingBroker, name: str, address: tuple[str, int], key: bytes, now_ms: Callable[[], int]
    ) -> None:
        self._broker, self._name, self.address, self._key, self._now_ms = broker, name, address, key, now_ms
        self._sock: socket.socket | None = None
        self._is_closed = False
        self._sending = BoundedSemaphore()
        self._rest = bytearray()
        self._greenlet = gevent.spawn(self._run)

    def close(self) -> None:
        """End the link. Safe from within it."""
        self._is_closed = True
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()
        if self._greenlet is not gevent.getcurrent():
            self._greenlet.kill(block=False)

    def tell(self) -> None:
        """Send what this slave has, if there is news."""
        group = self._broker.group
        with self._sending:
            stored = None if group is None else group.tell(self._now_ms())
            if stored is not None and self._sock is not None:
                self._sock.sendall(layout.frame(layout.STORED, layout.UNASKED, stored.encode()))

    def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._is_closed:
            try:
                self._sock, _ = dial(
                    self.address, self._key, role=REPLICA_ROLE, name=self._name, timeout_s=DIAL_S, sockets=gevent_socket
                )
                if self._begin():
                    pause_s = PAUSE_S
                    self._take()
            except (OSError, LinkError, LogError) as error:
                if self._is_closed:
                    return
                limited.warning("master=%s:%d: not followed: %s", *self.address, error, about=str(error)[:80])
            self._lost()
            gevent.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _lost(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()
        if self._broker.group is not None:
            self._broker.group.unfollow()
        self._broker.told()

    def _begin(self) -> bool:
        """FOLLOW and its answer; whether bytes come now."""
        group = self._broker.group
        asked = self._broker.first_follow() if group is None else group.ask()
        answer = Followed.decode(self._ask(layout.FOLLOW, asked.encode()))
        if group is None:
            base = answer.first - SEGMENT_HEADER_SIZE
            self._broker.make_log(self._ask(layout.FETCH, Fetch(base, 0, SEGMENT_HEADER_SIZE).encode()))
            return False
        step = group.answered(answer, self._now_ms())
        if step is FollowStep.TRUNCATE:
            self._broker.cut_log(answer.common)
        elif step is FollowStep.FETCH:
            raise LogError(
                f"this log ends at {answer.common}, and the master's begins at {answer.first}: "
                "give this broker an empty directory"
            )
        self._broker.told()
        return step is FollowStep.FOLLOW

    def _ask(self, op: int, payload: bytes) -> bytes:
        """One question while nothing else travels. Raises LinkError with the sentence of a refusal."""
        sock = self._sock
        assert sock is not None
        sock.settimeout(DIAL_S)
        sock.sendall(layout.frame(op, ASKED_ID, payload))
        data = bytearray()
        while (found := _frame_of(data, 0)) is None:
            self._receive(sock, data)
        answered, code, at, end = found
        if answered != op:
            raise LinkError(f"the answer to operation {op} is a frame of operation {answered}")
        if code != layout.OK:
            raise LinkError(bytes(data[at:end]).decode("utf-8", "replace"))
        self._rest = data[end:]
        return bytes(data[at:end])

    def _take(self) -> None:
        """Take frames until the link ends."""
        sock, data = self._sock, self._rest
        assert sock is not None
        while self._sock is sock:
            at = 0
            while (found := _frame_of(data, at)) is not None:
                op, code, start, end = found
                self._take_frame(op, code, bytes(memoryview(data)[start:end]))
                at = end
            del data[:at]
            self.tell()
            if self._sock is sock:
                self._receive(sock, data)

    def _take_frame(self, op: int, code: int, payload: bytes) -> None:
        group = self._broker.group
        if group is None or code != layout.OK:
            raise LinkError(payload.decode("utf-8", "replace"))
        if op == layout.BYTES:
            group.take(BytesFrame.decode(payload), self._now_ms())
        elif op == layout.SEGMENT:
            group.take(SegmentFrame.decode(payload), self._now_ms())
        elif op == layout.SYNC:
            SyncFrame.decode(payload)
            self._broker.sync_soon(self._tell_soon)
        else:
            raise LinkError(f"a frame of operation {op}: a master sends none")

    def _tell_soon(self) -> None:
        """In the loop, which must not wait for the socket."""
        gevent.spawn(self._tell_safely)

    def _tell_safely(self) -> None:
        with suppress(OSError):  # the greenlet that reads meets it, too
            self.tell()

    @staticmethod
    def _receive(sock: socket.socket, data: bytearray) -> None:
        chunk = sock.recv(READ_BYTES)
        if not chunk:
            raise ConnectionError("closed by the master")
        data += chunk


def _frame_of(data: bytearray, at: int) -> tuple[int, int, int, int] | None:
    """(operation, code, start and end of the payload) of the frame at `at`; None: it is not whole. Raises LinkError."""
    if len(data) - at < layout.HEADER_SIZE:
        return None
    size, op, _, code, _, _ = layout.HEADER.unpack_from(data, at)
    if not FRAME_REST_SIZE <= size <= FRAME_BYTES_MAX:
        raise LinkError(f"not a link frame: it says {size} bytes")
    end = at + 4 + size
    return None if len(data) < end else (op, code, at + layout.HEADER_SIZE, end)

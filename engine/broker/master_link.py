"""A slave's link to its master: the socket and the greenlet of a `MasterSession`, dialled again and again."""

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent
from gevent import socket as gevent_socket
from gevent.event import AsyncResult
from gevent.lock import BoundedSemaphore

from common.address import Address
from common.limited_log import LimitedLog
from engine.broker.master_session import DIAL_S, PAUSE_S, PAUSE_S_MAX, FollowingBroker, MasterSession
from engine.broker.native import NATIVE
from engine.client.dial import Keys, dial
from engine.errors import LogError
from engine.link import layout
from engine.link.errors import LinkError
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE
from engine.link.proof import REPLICA_ROLE

limited = LimitedLog(logging.getLogger("penstock.engine"))

READ_BYTES = 1 << 20


class MasterLink:
    """Follows one master until `close()`.

    Args:
        name: of this broker.
        now_ms: the monotonic clock.
        is_native: whether the reactor reads the link once the slave follows; tests pass both.
    """

    def __init__(
        self, broker: FollowingBroker, name: str, address: Address, key: Keys, now_ms: Callable[[], int],
        *, is_native: bool = NATIVE,
    ) -> None:  # fmt: skip
        self._broker, self._name, self._address, self._key, self._now_ms = broker, name, address, key, now_ms
        self._is_native = is_native
        self._link: Any = None  # a FrameLink, which owns the socket then
        self._sock: socket.socket | None = None
        self._session = self._new_session()
        self._is_closed = False
        self._sending = BoundedSemaphore()
        self._greenlet = gevent.spawn(self._run)

    def close(self) -> None:
        """End the link. Safe from within it."""
        self._is_closed = True
        self._close_socket()
        if self._greenlet is not gevent.getcurrent():
            self._greenlet.kill(block=False)

    def _new_session(self) -> MasterSession:
        return MasterSession(self._broker, self._now_ms, self._tell_soon)

    def _tell(self) -> None:
        """Send what this slave has, if there is news."""
        with self._sending:
            frame = self._session.tell()
            if frame and self._sock is not None:
                self._sock.sendall(frame)

    def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._is_closed:
            self._session = self._new_session()
            try:
                self._sock, _ = dial(
                    self._address, self._key, role=REPLICA_ROLE, name=self._name, timeout_s=DIAL_S,
                    sockets=gevent_socket,
                )  # fmt: skip
                self._sock.settimeout(DIAL_S)
                self._sock.sendall(self._session.begin())
                self._take()
            except (OSError, LinkError, LogError) as error:
                if self._is_closed:
                    return
                limited.warning("master=%s: not followed: %s", self._address, error, about=str(error)[:80])
            except Exception:  # a broker that follows nobody until its next start would be worse
                if self._is_closed:
                    return
                limited.exception("master=%s: not followed", self._address)
            if self._session.follows:
                pause_s = PAUSE_S
            self._lost()
            gevent.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _lost(self) -> None:
        self._close_socket()
        self._session.end()

    def _close_socket(self) -> None:
        sock, link = self._sock, self._link
        self._sock = self._link = None
        if link is not None:
            link.close()
        elif sock is not None:
            sock.close()

    def _take(self) -> None:
        """Take frames until the link ends, or there is nothing more to do on it."""
        data = bytearray()
        self._read_frames(data, until_follows=self._is_native)
        if self._is_native and self._session.follows and self._sock is not None:
            self._watch_frames(self._sock, bytes(data))

    def _watch_frames(self, sock: socket.socket, data: bytes) -> None:
        """Have the reactor read the link until it ends, the bytes in `data` first. Raises what has ended it."""
        from engine.broker._frame_link import FrameLink

        ended = AsyncResult()
        self._link = link = FrameLink(
            sock, str(self._address), self._take_frame, self._session.tell, ended.set, self._now_ms,
            self._session.following,
        )  # fmt: skip
        link.begin(data)
        frames = -1
        while frames != link.frames:
            frames = link.frames
            with suppress(gevent.Timeout):
                error = ended.get(timeout=DIAL_S)
                if self._session.is_over:
                    return
                raise error or ConnectionError("closed by the master")
        raise TimeoutError("the master is silent")

    def _take_frame(self, op: int, code: int, payload: bytes) -> bytes:
        """In the loop."""
        answer = self._session.take(op, code, payload)
        if self._session.is_over and self._link is not None:
            self._link.close()
        return answer

    def _read_frames(self, data: bytearray, *, until_follows: bool) -> None:
        """Read the link in this greenlet; the bytes of the next frame are left in `data`."""
        sock = self._sock
        assert sock is not None
        while self._sock is sock and not self._session.is_over and not (until_follows and self._session.follows):
            self._receive(sock, data)
            at = 0
            while not self._session.is_over and (found := _frame_of(data, at)) is not None:
                op, code, start, end = found
                answer = self._session.take(op, code, bytes(memoryview(data)[start:end]))
                if answer:
                    sock.sendall(answer)
                at = end
                if until_follows and self._session.follows:
                    break
            del data[:at]
            self._tell()

    def _tell_soon(self) -> None:
        """In the loop, which must not wait for the socket."""
        if self._link is not None:
            self._link.send(self._session.tell())
        else:
            gevent.spawn(self._tell_safely)

    def _tell_safely(self) -> None:
        with suppress(OSError):  # the greenlet that reads meets it, too
            self._tell()

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

"""UnprovenLinks: accepted connections whose other end has not proved yet that it knows the cluster key.

One thread serves all of them, so a stranger costs a descriptor and at most one frame of memory. A link with threads of
its own begins with the proof.
"""

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable

from common.limited_log import LimitedLog
from engine.link.codes import OK
from engine.link.frame import FRAME_REST_SIZE, HEADER, HEADER_SIZE, STRANGER_BYTES_MAX, frame
from kafka_bridge.greeting import BridgeGreeting, GreetingRefused

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
GREETING_S = 10.0
"""Time for the whole greeting, from the accepted connection to the proof."""
STRANGERS_MAX = 64
"""One more takes the place of the oldest. A proxy needs two round trips for its proof."""
LOOK_S = 0.5
FULL_PAUSE_S = 0.1
"""Pause after a connection could not be accepted, for want of descriptors."""

OnProved = Callable[[socket.socket, str], None]
"""Takes over a blocking socket and the peer's address, once the other end has proved that it knows the key."""


class Stranger:
    """One connection: reads frames without waiting, and answers each.

    Args:
        until_s: when it is closed if there is no proof by then, on the clock of its owner.
    """

    def __init__(self, sock: socket.socket, peer: str, greeting: BridgeGreeting, until_s: float) -> None:
        self.sock, self.peer, self.until_s = sock, peer, until_s
        self._greeting, self._received, self._wanted = greeting, bytearray(), HEADER_SIZE
        sock.setblocking(False)

    def serve(self) -> bool:
        """Take what has come; returns whether the other end is proved. Nothing of what follows the proof is read.

        Raises:
            OSError: the connection has ended, sends no link frames, or does not read its answers.
            GreetingRefused: the other end has been told so.
        """
        while not self._greeting.is_done:
            try:
                chunk = self.sock.recv(self._wanted - len(self._received))
            except BlockingIOError:
                return False
            if not chunk:
                raise ConnectionError("closed by the other end")
            self._received += chunk
            if len(self._received) == self._wanted:
                self._take()
        return True

    def _take(self) -> None:
        """A header or a frame is whole."""
        size, op, _, _, request_id, _ = HEADER.unpack_from(self._received)
        if not FRAME_REST_SIZE <= size <= STRANGER_BYTES_MAX:
            raise OSError(f"not a link frame: it says {size} bytes")
        self._wanted = HEADER_SIZE + size - FRAME_REST_SIZE
        if len(self._received) < self._wanted:
            return
        payload = bytes(self._received[HEADER_SIZE:])
        self._received.clear()
        self._wanted = HEADER_SIZE
        try:
            answer, code = self._greeting.answer(op, payload), OK
        except GreetingRefused as refusal:
            self._send(frame(op, request_id, str(refusal).encode(), refusal.code))
            raise
        self._send(frame(op, request_id, answer, code))

    def _send(self, data: bytes) -> None:
        """An answer is smaller than an empty buffer of the socket, and each stranger gets two at most."""
        if self.sock.send(data) < len(data):
            raise OSError("it does not read its answers")


class UnprovenLinks:
    """Accepts connections and greets them until `stop()`.

    Args:
        listener: owned from now on.
        on_proved: called in this object's thread.
    """

    def __init__(
        self, listener: socket.socket, new_greeting: Callable[[], BridgeGreeting], on_proved: OnProved,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._listener, self._new_greeting, self._on_proved, self._now_s = listener, new_greeting, on_proved, now_s
        self._open: dict[socket.socket, Stranger] = {}  # the oldest first
        self._selector = selectors.DefaultSelector()
        self._stopping = threading.Event()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="strangers", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._open)

    def stop(self) -> None:
        """Accept no more, and close those that are not proved."""
        self._stopping.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # refuses connections, and wakes the thread
        except OSError:
            pass
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(LOOK_S):
                if key.fileobj is self._listener:
                    self._accept()
                elif (stranger := self._open.get(key.fileobj)) is not None:  # type: ignore[call-overload]
                    self._serve(stranger)
            self._end_late()
        for each in [*self._open.values()]:
            self._close(each)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            sock, place = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            if not self._stopping.wait(FULL_PAUSE_S):
                limited.error("a connection cannot be accepted: %s", error)
            return
        if len(self._open) >= STRANGERS_MAX:
            self._refuse(next(iter(self._open.values())), f"{STRANGERS_MAX} others have not proved the cluster key yet")
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open[sock] = Stranger(sock, f"{place or 'local'}", self._new_greeting(), self._now_s() + GREETING_S)
        self._selector.register(sock, selectors.EVENT_READ)

    def _serve(self, stranger: Stranger) -> None:
        try:
            is_proved = stranger.serve()
        except GreetingRefused as refusal:
            limited.warning("connection=%s: refused: %s", stranger.peer, refusal)
            return self._close(stranger)
        except OSError as error:
            limited.info("connection=%s: closed: %s", stranger.peer, error)
            return self._close(stranger)
        except Exception:
            limited.exception("connection=%s: closed after an internal error", stranger.peer)
            return self._close(stranger)
        if is_proved:
            self._forget(stranger)
            stranger.sock.setblocking(True)
            self._on_proved(stranger.sock, stranger.peer)
        return None

    def _end_late(self) -> None:
        now_s = self._now_s()
        for each in [each for each in self._open.values() if each.until_s <= now_s]:
            self._refuse(each, f"no proof of the cluster key within {GREETING_S:g} s")

    def _refuse(self, stranger: Stranger, reason: str) -> None:
        limited.warning("connection=%s: refused: %s", stranger.peer, reason)
        self._close(stranger)

    def _close(self, stranger: Stranger) -> None:
        self._forget(stranger)
        stranger.sock.close()

    def _forget(self, stranger: Stranger) -> None:
        self._selector.unregister(stranger.sock)
        del self._open[stranger.sock]

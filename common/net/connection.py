"""Connection in pure Python: a greenlet that reads, and one that writes while there is output.

The reference of `_connection.pyx`.
"""

import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket as gevent_socket

from common.net.framing import BUFFERED, FRAMED, FramingError, Incomplete, MessageScan, sniff
from common.net.limits import Limits
from common.net.tls import TlsStream

log = logging.getLogger("penstock.net")
READ_BYTES = 65_536


class CallConnection:
    """One client. docs/design/0001-seams.md, section 2, lists the guarantees."""

    def __init__(
        self,
        sock: socket.socket,
        limits: Limits,
        peer: str,
        ssl_context: ssl.SSLContext | None = None,
        on_call: Callable[["CallConnection", bytes], None] | None = None,
        prefix_check: Callable[["CallConnection", bytes], bool] | None = None,
    ) -> None:
        self.peer, self.closed, self.busy = peer, False, False
        self.on_close: Callable[[CallConnection], None] | None = None
        self.context: Any = None
        self._limits, self._on_call, self._prefix_check = limits, on_call, prefix_check
        self._protocol: int | None = None
        self._trusted = self._greeted = False
        self._input, self._output = bytearray(), bytearray()
        self._scan = MessageScan()
        self._waiting_since = time.monotonic()
        self._partial = False
        self._writer: Any = None
        self._closing = False
        self._sock: Any = gevent_socket.socket(sock.family, sock.type, fileno=sock.detach())
        self.tls: ssl.SSLObject | None = None
        if ssl_context is not None:
            self._sock = TlsStream(self._sock, ssl_context)
            self.tls = self._sock.tls
        self._reader = gevent.spawn(self._read)

    def reply(self, frame: bytes) -> None:
        """Answer the call in progress; never blocks."""
        if self.closed:
            return
        if self._protocol == FRAMED:
            self._output += len(frame).to_bytes(4, "big")
        self._output += frame
        self.busy = False
        self._mark(partial=bool(self._input))
        self._start_writer()
        gevent.get_hub().loop.run_callback(self._consume)

    def trust(self) -> None:
        self._trusted = True

    def close_when_sent(self) -> None:
        self._closing = True
        self._start_writer()

    def close(self, reason: str = "") -> None:
        if self.closed:
            return
        self.closed = True
        log.debug("connection=%s: closed: %s", self.peer, reason)
        self._sock.close()
        for greenlet in (self._reader, self._writer):
            if greenlet is not None and greenlet is not gevent.getcurrent():
                greenlet.kill(block=False)
        if self.on_close is not None:
            self.on_close(self)

    @property
    def _held(self) -> bool:
        """Whether no further call is accepted: one is in progress, or the client does not read its answers."""
        return self.busy or (self._writer is not None and len(self._output) >= READ_BYTES)

    def _mark(self, *, partial: bool) -> None:
        self._partial = partial
        self._waiting_since = time.monotonic()

    def _read(self) -> None:
        try:
            while not self.closed:
                data = self._receive()
                if not data:
                    return self.close("closed by the peer")
                if not self._input and not self._held:
                    self._mark(partial=True)
                self._input += data
                self._consume()
                while self._held and len(self._input) >= READ_BYTES and not self.closed:
                    gevent.sleep(0.01)  # back-pressure: further input stays in the kernel
        except gevent.Timeout:
            self.close("deadline passed")
        except (OSError, ssl.SSLError) as error:
            self.close(str(error))

    def _receive(self) -> bytes:
        while True:
            try:
                with gevent.Timeout(self._deadline() - time.monotonic() if not self._held else 1.0):
                    return self._sock.recv(READ_BYTES)
            except gevent.Timeout:
                if not self._held and time.monotonic() >= self._deadline():
                    raise

    def _deadline(self) -> float:
        limits = self._limits
        wait = limits.read_deadline_s if self._partial else limits.idle_deadline_s
        return self._waiting_since + (wait if self._greeted else min(wait, limits.greeting_deadline_s))

    def _consume(self) -> None:
        try:
            while self._input and not self._held and not self.closed:
                frame = self._next_frame()
                if frame is None:
                    return
                self.busy = self._greeted = True
                assert self._on_call is not None
                self._on_call(self, frame)
        except FramingError as error:
            self.close(str(error))
        except Exception:
            log.exception("connection=%s: closed after an internal error", self.peer)
            self.close("internal error")

    def _next_frame(self) -> bytes | None:
        if self._protocol is None:
            self._protocol = sniff(bytes(self._input[:5]))
        if self._protocol is None:
            return None
        head = 0 if self._protocol == BUFFERED else 4
        size, complete = self._size(head)
        if size is None or not self._admit(size, head) or not complete:
            return None
        frame = bytes(self._input[head : head + size])
        del self._input[: head + size]
        self._scan = MessageScan()
        return frame

    def _size(self, head: int) -> tuple[int | None, bool]:
        if head == 0:
            try:
                return self._scan.size(self._input), True
            except Incomplete as more:
                return more.args[0], False
        if len(self._input) < 4:
            return None, False
        size = int.from_bytes(self._input[:4], "big")
        if size == 0:
            raise FramingError("frame length out of range")
        return size, len(self._input) >= 4 + size

    def _admit(self, size: int, head: int) -> bool:
        if size > self._limits.frame_bytes_max:
            raise FramingError("frame length out of range")
        unverified_max = self._limits.frame_bytes_untrusted_max
        if self._trusted or size <= unverified_max:
            return True
        if len(self._input) - head < unverified_max:
            return False
        if self._prefix_check is None or not self._prefix_check(self, bytes(self._input[head : head + unverified_max])):
            raise FramingError("a long frame before the first verified credential")
        self._trusted = True
        return True

    def _start_writer(self) -> None:
        if self._writer is None and not self.closed:
            self._writer = gevent.spawn(self._write)

    def _write(self) -> None:
        try:
            while self._output:
                chunk, self._output = bytes(self._output), bytearray()
                with gevent.Timeout(self._limits.write_deadline_s):
                    self._sock.sendall(chunk)
            self._writer = None
            if self._input and not self.busy:
                self._mark(partial=True)
                gevent.get_hub().loop.run_callback(self._consume)
            if self._closing:
                self.close("done")
        except (gevent.Timeout, OSError) as error:
            self.close(f"cannot write: {error}")

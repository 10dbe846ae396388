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

from common.limited_log import LimitedLog
from common.net.framing import BUFFERED, FRAMED, SNIFFED_BYTES, FramingError, Incomplete, MessageScan, sniff
from common.net.limits import Limits
from common.net.refusal import REFUSALS, exception_for, head_size, too_long, unproved
from common.net.tls import TlsContext, TlsStream
from common.net.writer import COUNTED_BYTES, OUTPUT, send_at_rate

log = logging.getLogger("penstock.net")
limited = LimitedLog(log)
READ_BYTES = 65_536
STRANGER_READ_BYTES = 4_096


class CallConnection:
    """One client. docs/design/0001-seams.md, section 2, lists the guarantees."""

    def __init__(
        self,
        sock: socket.socket,
        limits: Limits,
        peer: str,
        ssl_context: TlsContext | None = None,
        on_call: Callable[["CallConnection", bytes], None] | None = None,
        prefix_check: Callable[["CallConnection", bytes], bool] | None = None,
    ) -> None:
        self.peer, self.closed, self.busy = peer, False, False
        self.unsent = False
        self.queued = self.left = 0
        self.on_close: Callable[[CallConnection], None] | None = None
        self.on_trust: Callable[[CallConnection, bool], None] | None = None
        self.context: Any = None
        self.retry_slot: Any = None
        self._limits, self._on_call, self._prefix_check = limits, on_call, prefix_check
        self._protocol: int | None = None
        self._trusted = False
        self._input, self._output = bytearray(), bytearray()
        self._scan = MessageScan()
        self._waiting_since = self._stranger_since = time.monotonic()
        self._partial = False
        self._writer: Any = None
        self._counted = 0
        self._closing = self._refusing = False
        self._sock: Any = gevent_socket.socket(sock.family, sock.type, fileno=sock.detach())
        if ssl_context is not None:
            self._sock = TlsStream(self._sock, ssl_context)
        self._reader = gevent.spawn(self._read)

    @property
    def tls(self) -> ssl.SSLObject | None:
        """None without TLS, also before the client has sent anything."""
        return self._sock.tls if isinstance(self._sock, TlsStream) else None

    def reply(self, frame: bytes) -> None:
        """Answer the call in progress; never blocks."""
        if self.closed:
            return
        if self._protocol == FRAMED:
            self._output += len(frame).to_bytes(4, "big")
        self._output += frame
        self.queued += len(frame) + (4 if self._protocol == FRAMED else 0)
        self._count(len(frame))
        self.busy = False
        self._mark(partial=bool(self._input))
        self._start_writer()
        gevent.get_hub().loop.run_callback(self._consume)

    def trust(self) -> None:
        """A credential has verified: accept frames up to frame_bytes_max, and idle times, from now on."""
        if not self._trusted:
            self._trusted = True
            if self.on_trust is not None:
                self.on_trust(self, True)

    def distrust(self) -> None:
        """A credential was refused: the client is a stranger again, and has the greeting deadline to show a valid one."""
        if self._trusted and not self.closed:
            self._trusted, self._stranger_since = False, time.monotonic()
            if self.on_trust is not None:
                self.on_trust(self, False)

    def close_when_sent(self) -> None:
        self._closing = True
        self._start_writer()

    def close(self, reason: str = "") -> None:
        if self.closed:
            return
        self.closed, self.unsent = True, self._writer is not None
        log.debug("connection=%s: closed: %s", self.peer, reason)
        self._sock.close()
        self._count(0)
        for greenlet in (self._reader, self._writer):
            if greenlet is not None and greenlet is not gevent.getcurrent():
                greenlet.kill(block=False)
        if self.on_close is not None:
            self.on_close(self)

    def _count(self, size: int) -> None:
        """Count a large answer of this size as waiting; 0: all have left."""
        size = size if size > COUNTED_BYTES else 0
        change = size if size else -self._counted
        self._counted += change
        if change:
            OUTPUT.add(change)

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
                if self._refusing:
                    continue
                if not self._input and not self._held:
                    self._mark(partial=True)
                self._input += data
                self._consume()
                kept = READ_BYTES if self._trusted else STRANGER_READ_BYTES
                while self._held and len(self._input) >= kept and not self.closed:
                    gevent.sleep(0.01)  # back-pressure: further input stays in the kernel
        except gevent.Timeout:
            self.close("deadline passed")
        except (OSError, ssl.SSLError) as error:
            self.close(str(error))

    def _receive(self) -> bytes:
        while True:
            try:
                with gevent.Timeout(self._deadline() - time.monotonic() if not self._held else 1.0):
                    return self._sock.recv(READ_BYTES if self._trusted else STRANGER_READ_BYTES)
            except gevent.Timeout:
                if not self._held and time.monotonic() >= self._deadline():
                    raise

    def _deadline(self) -> float:
        limits = self._limits
        until = self._waiting_since + (limits.read_deadline_s if self._partial else limits.idle_deadline_s)
        return until if self._trusted else min(until, self._stranger_since + limits.greeting_deadline_s)

    def _consume(self) -> None:
        try:
            while self._input and not self._held and not self.closed and not self._refusing:
                frame = self._next_frame()
                if frame is None:
                    return
                self.busy = True
                assert self._on_call is not None
                self._on_call(self, frame)
        except FramingError as error:
            self.close(str(error))
        except Exception:
            limited.exception("connection=%s: closed after an internal error", self.peer)
            self.close("internal error")

    def _next_frame(self) -> bytes | None:
        if self._protocol is None:
            self._protocol = sniff(bytes(self._input[:SNIFFED_BYTES]))
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
        limits = self._limits
        if size > limits.frame_bytes_max:
            return self._refuse(head, too_long(size, limits.frame_bytes_max))
        unverified_max = limits.frame_bytes_untrusted_max
        if self._trusted or size <= unverified_max:
            return True
        if len(self._input) - head < unverified_max:
            return False
        if self._prefix_check is None or not self._prefix_check(self, bytes(self._input[head : head + unverified_max])):
            return self._refuse(head, unproved(size, unverified_max))
        self.trust()
        return True

    def _refuse(self, head: int, sentence: str) -> bool:
        """Answer a frame whose size is not allowed once its head is there, and drop its rest; returns False.

        The connection stays open until the client has read the answer: a reset would overtake it.
        """
        start = bytes(self._input[head : head + 8])
        need = head_size(start)
        if need == 0:
            raise FramingError(sentence)
        if len(self._input) >= head + need:
            REFUSALS.note(self.peer, sentence)
            answer = exception_for(bytes(self._input[head : head + need]), sentence)
            self._input.clear()
            self._refusing = True
            self._mark(partial=True)
            self._output += (len(answer).to_bytes(4, "big") if head else b"") + answer
            self.queued += len(answer) + (4 if head else 0)
            self._start_writer()
        return False

    def _start_writer(self) -> None:
        if self._writer is None and not self.closed:
            self._writer = gevent.spawn(self._write)

    def _write(self) -> None:
        try:
            while self._output:
                chunk, self._output = bytes(self._output), bytearray()
                send_at_rate(self._sock, chunk, self._limits)
                self.left += len(chunk)
            self._writer = None
            self._count(0)
            if self._refusing:
                self._sock.shutdown(socket.SHUT_WR)
                return
            if self._input and not self.busy:
                self._mark(partial=True)
                gevent.get_hub().loop.run_callback(self._consume)
            if self._closing:
                self.close("done")
        except OSError as error:
            self.close(f"cannot write: {error}")

"""Transport of one link: one greenlet reads, one writes while there is output. The reference of `_transport.pyx`."""

import logging
import socket
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket as gevent_socket

from common.limited_log import LimitedLog
from common.net.limits import Limits
from common.net.writer import OUTPUT, send_at_rate
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE, HEADER, HEADER_SIZE, UNASKED, frame
from engine.link.integers import U64
from engine.link.operations import PULL, READ, WINDOW

limited = LimitedLog(logging.getLogger("penstock.engine.client"))
READ_BYTES = 262_144
WINDOW_STEP = 1 << 20
"""Least change of the window's limit that is told."""
LIMITS = Limits(output_bytes_max=1 << 40)


class Transport:
    """One authenticated link; the methods of the native form."""

    def __init__(
        self, sock: socket.socket, peer: str, on_answer: Callable[[int, int, bytes], None], on_down: Callable[[], None]
    ) -> None:
        self.peer, self.closed = peer, False
        self._on_answer, self._on_down = on_answer, on_down
        self._output: list[bytes] = []
        self._window = self._received = self._told = 0
        self._links = 1
        self._writer: Any = None
        sock.setblocking(False)
        self._sock = gevent_socket.socket(sock.family, sock.type, fileno=sock.detach())
        self._reader = gevent.spawn(self._read)

    def post(self, op: int, request_id: int, payload: bytes) -> None:
        if self.closed:
            return
        self._output.append(frame(op, request_id, payload))
        if self._writer is None:
            self._writer = gevent.spawn(self._write)

    def share_window(self, window: int, links: int) -> None:
        """Take answers with messages while less than `window` bytes of answers wait for clients; `links` share them."""
        if not self._window:
            OUTPUT.watchers.append(self._tell_window)
        self._window, self._links = window, links
        self._tell_window()

    def _tell_window(self) -> None:
        limit = self._received + max(0, self._window - OUTPUT.size) // self._links
        if self._window and limit >= self._told + WINDOW_STEP:
            self._told = limit
            self.post(WINDOW, UNASKED, U64.pack(limit))

    def close(self, reason: str = "") -> None:
        if self.closed:
            return
        self.closed = True
        if self._window:
            OUTPUT.watchers.remove(self._tell_window)
        self._sock.close()
        for greenlet in (self._reader, self._writer):
            if greenlet is not None and greenlet is not gevent.getcurrent():
                greenlet.kill(block=False)
        self._on_down()

    def _read(self) -> None:
        data = bytearray()
        try:
            while not self.closed:
                chunk = self._sock.recv(READ_BYTES)
                if not chunk:
                    return self.close("closed by the engine")
                data += chunk
                self._consume(data)
        except OSError as error:
            self.close(str(error))

    def _consume(self, data: bytearray) -> None:
        while len(data) >= HEADER_SIZE and not self.closed:
            size, op, _, code, request_id, _ = HEADER.unpack_from(data)
            if not FRAME_REST_SIZE <= size <= FRAME_BYTES_MAX:
                self.close("not a link frame")
                break
            if len(data) < 4 + size:
                break
            payload = bytes(data[HEADER_SIZE : 4 + size])
            del data[: 4 + size]
            if op in (PULL, READ):
                self._received += 4 + size
            try:
                self._on_answer(request_id, code, payload)
            except Exception:
                limited.exception("engine=%s: the callback of an answer failed", self.peer)
            self._tell_window()

    def _write(self) -> None:
        try:
            while self._output:
                chunk, self._output = b"".join(self._output), []
                send_at_rate(self._sock, chunk, LIMITS)
            self._writer = None
        except OSError as error:
            self.close(str(error))

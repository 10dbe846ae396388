"""Link connections in pure Python, the reference for `_serve.pyx`.

One greenlet reads, another writes while there is output. An APPEND is written as it arrives, not once per loop turn;
the answers are the same.
"""

import logging
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket as gevent_socket

from common.limited_log import LimitedLog
from common.net.limits import UNREAD_BYTES_MAX, Limits
from common.net.writer import send_at_rate
from engine.link import layout
from engine.node import Node
from engine.ops.output_hold import OutputHold, hold_of

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)
READ_BYTES = 262_144
NO_LIMIT = (1 << 64) - 1
UNSENT_MAX = 1 << 20
"""Output of a link above which only small answers are added: the next one waits for all of it."""


class Turn:
    """The totals of APPEND; the node itself appends frame by frame here.

    Attributes:
        is_over: another node serves. For the native form only.
    """

    def __init__(self, node: Node) -> None:
        self._append, self.is_over = node.append, False

    @property
    def appends(self) -> int:
        """APPEND requests."""
        return self._append.appends

    @property
    def batches(self) -> int:
        """Batches stored."""
        return self._append.batches

    @property
    def messages(self) -> int:
        """Messages stored."""
        return self._append.messages

    @property
    def bytes(self) -> int:
        """Bytes of stored batches."""
        return self._append.bytes


class LinkConnection:
    """One link; a `Peer` of the node, with the same methods as the native form."""

    def __init__(self, sock: Any, limits: Limits, peer: str, turn: Turn, node: Node) -> None:
        self.peer, self.closed, self.on_close = peer, False, None
        self.on_trust: Callable[[Any, bool], None] | None = None
        self._node, self._limits = node, limits
        self._authenticated, self._closing = False, False
        self._output = bytearray()
        self.backlog = self.queued = 0  # bytes of output: that have not left, of all
        self._output_hold: OutputHold | None = None
        self._sendable = NO_LIMIT  # position up to which output may leave
        self._noted = 0  # position up to which the hold knows the output
        self._writer: gevent.Greenlet | None = None
        self._sock = gevent_socket.socket(sock.family, sock.type, fileno=sock.detach())
        self.peer_state = node.on_connected(self)
        self._reader = gevent.spawn(self._read)

    def trust(self) -> None:
        self._authenticated = True
        if self.on_trust is not None:
            self.on_trust(self, True)
        self._output_hold = hold_of(self._node.output_hold, self.peer_state)
        if self._output_hold is not None:
            self._noted = self._sendable = self.queued

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        if self.closed:
            return
        size = layout.HEADER_SIZE - 4 + sum(map(len, parts))
        self._output += layout.HEADER.pack(size, op, 0, code, request_id, 0)
        self._output += b"".join(parts)
        self.backlog += size + 4
        self.queued += size + 4
        if op in (layout.PULL, layout.READ):
            self.peer_state.window.sent += size + 4
            self.peer_state.window.is_full = self.backlog > UNSENT_MAX
        self._start_writer()

    def release(self, position: int) -> None:
        """Let output leave up to this position of `queued`. The limit never falls."""
        if position > self._sendable and not self.closed:
            self._sendable = min(position, self.queued)
            self._start_writer()

    def close_when_sent(self) -> None:
        self._closing = True
        self._close_if_done()

    def close(self, reason: str = "") -> None:
        if self.closed:
            return
        self.closed = True
        log.debug("connection=%s: closed: %s", self.peer, reason)
        self._sock.close()
        for greenlet in (self._reader, self._writer):
            if greenlet is not None and greenlet is not gevent.getcurrent():
                greenlet.kill(block=False)
        self._node.on_closed(self)
        if self.on_close is not None:
            self.on_close(self)

    def _read(self) -> None:
        data = bytearray()
        try:
            while not self.closed:
                chunk = self._sock.recv(READ_BYTES)
                if not chunk:
                    return self.close("closed by the peer")
                data += chunk
                if not self._consume(data):
                    return self.close("not a link frame")
        except OSError as error:
            self.close(str(error))
        except Exception:
            limited.exception("connection=%s: closed after an internal error", self.peer)
            self.close("internal error")

    def _consume(self, data: bytearray) -> bool:
        """Serve the whole frames at the start of `data` and remove them; False when the next bytes are no frame."""
        while len(data) >= 4 and not self.closed:
            size = int.from_bytes(data[:4], "little")
            limit = layout.FRAME_BYTES_MAX if self._authenticated else layout.STRANGER_BYTES_MAX
            if not layout.HEADER_SIZE - 4 <= size <= limit:
                return False
            if len(data) < 4 + size:
                return True
            _, op, _, _, request_id, _ = layout.HEADER.unpack_from(data)
            payload = bytes(data[layout.HEADER_SIZE : 4 + size])
            del data[: 4 + size]
            if min(self.queued, self._sendable) - (self.queued - self.backlog) > UNREAD_BYTES_MAX:
                self.close("does not read its answers")
                return True
            self._node.on_request(self, op, request_id, payload)
        return True

    def _start_writer(self) -> None:
        if self._writer is None:
            self._writer = gevent.spawn(self._write)

    def _write(self) -> None:
        try:
            while size := self._sendable_bytes():
                chunk = bytes(self._output[:size])
                del self._output[:size]
                send_at_rate(self._sock, chunk, self._limits)
                self.backlog -= size
                self._on_room()
            self._writer = None
            self._close_if_done()
        except OSError as error:
            self.close(f"cannot write: {error}")

    def _sendable_bytes(self) -> int:
        """Number of bytes of the output that may leave now, once new output is noted."""
        if self._output_hold is not None and self._noted < self.queued:
            self._noted = self.queued
            if self._output_hold.note(self, self.queued):
                self._sendable = self.queued
        return min(self.queued, self._sendable) - (self.queued - self.backlog)

    def _close_if_done(self) -> None:
        if self._closing and self._writer is None and not self.backlog and not self.peer_state.unsynced:
            self.close("done")

    def _on_room(self) -> None:
        if self.peer_state.window.is_full and self.backlog <= UNSENT_MAX // 2:
            self.peer_state.window.is_full = False
            self._node.on_room(self)

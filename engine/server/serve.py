"""Link connections in pure Python, the reference for `_serve.pyx`.

One greenlet reads, another writes while there is output. An APPEND is written as it arrives, not once per loop turn;
the answers are the same.
"""

import logging
from typing import Any

import gevent
from gevent import socket as gevent_socket

from common.limited_log import LimitedLog
from common.net.limits import Limits
from common.net.writer import send_at_rate
from engine.link import layout
from engine.node import Node

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)
READ_BYTES = 262_144
UNSENT_MAX = 1 << 20
"""Output of a link above which only small answers are added: the next one waits for all of it."""


class Turn:
    """The totals of APPEND; the node itself appends frame by frame here."""

    def __init__(self, node: Node) -> None:
        self._append = node.append

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
        self._node, self._limits = node, limits
        self._authenticated, self._closing = False, False
        self._output: list[bytes] = []
        self.backlog = self.queued = 0  # bytes of output: that have not left, of all
        self._writer: gevent.Greenlet | None = None
        self._sock = gevent_socket.socket(sock.family, sock.type, fileno=sock.detach())
        self.peer_state = node.on_connected(self)
        self._reader = gevent.spawn(self._read)

    def trust(self) -> None:
        self._authenticated = True

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        if self.closed:
            return
        size = layout.HEADER_SIZE - 4 + sum(map(len, parts))
        self._output.append(layout.HEADER.pack(size, op, 0, code, request_id, 0))
        self._output += parts
        self.backlog += size + 4
        self.queued += size + 4
        if op in (layout.PULL, layout.READ):
            self.peer_state.window.sent += size + 4
            self.peer_state.window.is_full = self.backlog > UNSENT_MAX
        if self._writer is None:
            self._writer = gevent.spawn(self._write)

    def close_when_sent(self) -> None:
        self._closing = True
        if self._writer is None and not self.peer_state.unsynced:
            self.close("done")

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
            self._node.on_request(self, op, request_id, payload)
        return True

    def _write(self) -> None:
        try:
            while self._output:
                chunk, self._output = b"".join(self._output), []
                send_at_rate(self._sock, chunk, self._limits)
                self.backlog -= len(chunk)
                self._on_room()
            self._writer = None
            if self._closing and not self.peer_state.unsynced:
                self.close("done")
        except OSError as error:
            self.close(f"cannot write: {error}")

    def _on_room(self) -> None:
        if self.peer_state.window.is_full and self.backlog <= UNSENT_MAX // 2:
            self.peer_state.window.is_full = False
            self._node.on_room(self)

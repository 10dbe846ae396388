"""The pure-Python twin of `_serve.pyx`: a greenlet that reads a connection, one that writes while there is output.

An append is written as it comes, not once a loop turn; the answers are the same.
"""

import logging
import time
from functools import partial

import gevent
from gevent import socket as gevent_socket

from engine.errors import EngineError
from engine.link import layout

log = logging.getLogger("penstock.engine")
READ_BYTES = 262_144


class Turn:
    """Appends of all connections of one server, and their totals."""

    def __init__(self, store, service) -> None:
        self._store, self._service = store, service
        self.appends = self.batches = self.messages = self.bytes = 0

    def append(self, connection: "LinkConnection", request_id: int, payload: bytes) -> None:
        """Append one frame's batches and answer, at once or behind the sync."""
        if len(payload) < layout.APPEND_HEAD.size or not 1 <= payload[0] <= 4:
            connection.refuse(layout.APPEND, request_id, layout.INVALID, "APPEND: durability 1..4, then the batches")
            return
        durability, count = layout.APPEND_HEAD.unpack_from(payload)
        batches = memoryview(payload)[layout.APPEND_HEAD.size :]
        if count == 0 or count * layout.BATCH_HEADER_SIZE > len(batches):
            connection.refuse(layout.APPEND, request_id, layout.INVALID, "APPEND: no batches, or more than bytes")
            return
        try:
            results = self._store.appender.append_results(batches, count, time.time_ns() // 1_000_000)
        except EngineError as error:
            log.warning("append refused: %s", error)
            connection.refuse(layout.APPEND, request_id, error.code, str(error))
            return
        self._count(batches, results)
        answer = partial(connection.send_appended, request_id, results)
        # Answers to the APPENDs of one connection keep their order, so one behind a sync waits for the sync.
        if durability == layout.MEMORY and not connection.unsynced:
            answer()
        else:
            connection.unsynced += 1
            self._store.when_durable(self._store.end_position, partial(connection.synced, answer))
        self._service.on_woken()

    def _count(self, batches: memoryview, results: bytes) -> None:
        self.appends += 1
        at = 0
        for code, _, _ in layout.APPEND_RESULT.iter_unpack(results):
            size = int.from_bytes(batches[at + 4 : at + 8], "little")
            if code == layout.OK:
                self.batches += 1
                self.messages += int.from_bytes(batches[at + 24 : at + 28], "little")
                self.bytes += size
            at += size + 7 & ~7


class LinkConnection:
    """One link; the same methods as the native form."""

    def __init__(self, sock, limits, peer: str, turn: Turn, service) -> None:
        self.peer, self.closed, self.on_close = peer, False, None
        self.unsynced = 0
        self._turn, self._service, self._limits = turn, service, limits
        self._authenticated, self._closing = False, False
        self._output: list[bytes] = []
        self._writer = None
        self._sock = gevent_socket.socket(sock.family, sock.type, fileno=sock.detach())
        self.peer_state = service.new_peer(self)
        self._reader = gevent.spawn(self._read)

    def trust(self) -> None:
        self._authenticated = True

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        if self.closed:
            return
        size = layout.HEADER_SIZE - 4 + sum(map(len, parts))
        self._output.append(layout.HEADER.pack(size, op, 0, code, request_id, 0))
        self._output += parts
        if self._writer is None:
            self._writer = gevent.spawn(self._write)

    def send_appended(self, request_id: int, results: bytes) -> None:
        self.send_frame(layout.APPEND, request_id, layout.OK, [results])

    def synced(self, answer) -> None:
        self.unsynced -= 1
        answer()

    def refuse(self, op: int, request_id: int, code: int, sentence: str) -> None:
        self.send_frame(op, request_id, code, [sentence.encode()])

    def close_when_sent(self) -> None:
        self._closing = True
        if self._writer is None and not self.unsynced:
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
        self._service.on_closed(self)
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
            log.exception("connection=%s: closed after an error of ours", self.peer)
            self.close("internal error")

    def _consume(self, data: bytearray) -> bool:
        """Handle the whole frames at the start of `data` and remove them; False when what comes is no frame."""
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
            if op == layout.APPEND and self._authenticated:
                self._turn.append(self, request_id, payload)
            else:
                self._service.on_request(self, op, request_id, payload)
        return True

    def _write(self) -> None:
        try:
            while self._output:
                chunk, self._output = b"".join(self._output), []
                with gevent.Timeout(self._limits.write_deadline_s):
                    self._sock.sendall(chunk)
            self._writer = None
            if self._closing and not self.unsynced:
                self.close("done")
        except (gevent.Timeout, OSError) as error:
            self.close(f"cannot write: {error}")

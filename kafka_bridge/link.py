"""One link of a proxy: a thread that reads requests, and one that writes answers.

Answers come from threads of Kafka's clients, which must not wait for a proxy that reads slowly; so they are queued here.
"""

import logging
import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue

from common.limited_log import LimitedLog
from engine.link.codes import INVALID
from engine.link.errors import PayloadError
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE, HEADER, HEADER_SIZE, frame

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
READ_BYTES = 262_144
ANSWERS_MAX = 256
"""Answers that one write takes together."""
ANSWER_BYTES_MAX = 64 << 20
"""Answers that wait for a proxy to read them. Above it the link is closed: its proxy does not read."""

Serve = Callable[["BridgeLink", int, int, bytes], None]
"""Serves (link, operation, request id, payload); answers now or later by `link.answer`. Raises PayloadError."""


class BridgeLink:
    """One connection whose other end has proved to know the key; both threads end with it.

    Args:
        serve: called in the reading thread for each request.
        on_closed: called once, in either thread.
    """

    def __init__(self, sock: socket.socket, peer: str, serve: Serve, on_closed: Callable[["BridgeLink"], None]) -> None:
        self.peer = peer
        self._sock, self._serve, self._on_closed = sock, serve, on_closed
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._closing = threading.Lock()
        self._is_closed = False
        threading.Thread(target=self._read, name=f"link {peer} in", daemon=True).start()
        threading.Thread(target=self._write, name=f"link {peer} out", daemon=True).start()

    def answer(self, op: int, request_id: int, code: int, payload: bytes) -> None:
        """Queue an answer. May be called by any thread; without a connection it is dropped."""
        data = frame(op, request_id, payload, code)
        with self._closing:
            if self._is_closed:
                return
            self._waiting_bytes += len(data)
            is_full = self._waiting_bytes > max(ANSWER_BYTES_MAX, len(data))
            if not is_full:
                self._answers.put(data)
        if is_full:
            self.close(f"it does not read its answers: {ANSWER_BYTES_MAX:,} bytes wait")

    def close(self, reason: str) -> None:
        """Close the connection. What is in flight stays in flight: its answers are dropped."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        limited.info("connection=%s: closed: %s", self.peer, reason)
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        except OSError:
            pass
        self._sock.close()
        self._answers.put(None)
        self._on_closed(self)

    def finish(self) -> None:
        """Close the connection once the queued answers have left."""
        self._answers.put(None)

    def _read(self) -> None:
        try:
            while True:
                op, request_id, payload = self._read_frame()
                self._serve(self, op, request_id, payload)
        except PayloadError as error:
            limited.error("connection=%s: %s", self.peer, error)
            self.answer(op, request_id, INVALID, str(error).encode())
            self.finish()
        except OSError as error:
            self.close(str(error))
        except Exception:
            limited.exception("connection=%s: closed after an internal error", self.peer)
            self.close("internal error")

    def _read_frame(self) -> tuple[int, int, bytes]:
        size, op, _, _, request_id, _ = HEADER.unpack(self._receive(HEADER_SIZE))
        if not FRAME_REST_SIZE <= size <= FRAME_BYTES_MAX:
            raise OSError(f"not a link frame: it says {size} bytes")
        return op, request_id, self._receive(size - FRAME_REST_SIZE)

    def _receive(self, size: int) -> bytes:
        chunk = self._sock.recv(size, socket.MSG_WAITALL) if size else b""
        if len(chunk) == size:
            return chunk
        data = bytearray(chunk)
        while len(data) < size:
            if not chunk:
                raise ConnectionError("closed by the proxy")
            chunk = self._sock.recv(min(READ_BYTES, size - len(data)))
            data += chunk
        return bytes(data)

    def _write(self) -> None:
        try:
            while (first := self._answers.get()) is not None:
                parts: list[bytes] = [first]
                while len(parts) < ANSWERS_MAX and not self._answers.empty():
                    following = self._answers.get()
                    if following is None:
                        self._answers.put(None)
                        break
                    parts.append(following)
                data = b"".join(parts)
                self._sock.sendall(data)
                with self._closing:
                    self._waiting_bytes -= len(data)
            self.close("done")
        except OSError as error:
            self.close(f"cannot write: {error}")

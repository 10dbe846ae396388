"""One link of a proxy: a thread that reads requests, and one that writes answers.

Answers come from threads of Kafka's clients, which must not wait for a proxy that reads slowly; so they are queued here.
"""

import logging
import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue

from common.limited_log import LimitedLog
from engine.link.codes import INVALID, OK
from engine.link.errors import PayloadError
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE, HEADER, HEADER_SIZE, STRANGER_BYTES_MAX, frame
from kafka_bridge.greeting import BridgeGreeting, GreetingRefused

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
READ_BYTES = 262_144
ANSWERS_MAX = 256
"""Answers that one write takes together."""
GREETING_S = 10.0

Serve = Callable[["BridgeLink", int, int, bytes], None]
"""Serves (link, operation, request id, payload); answers now or later by `link.answer`. Raises PayloadError."""


class BridgeLink:
    """One accepted connection; both threads end with it.

    Args:
        serve: called in the reading thread for each request of an authenticated link.
        on_closed: called once, in either thread.
    """

    def __init__(
        self, sock: socket.socket, peer: str, greeting: BridgeGreeting, serve: Serve,
        on_closed: Callable[["BridgeLink"], None],
    ) -> None:  # fmt: skip
        self.peer = peer
        self._sock, self._greeting, self._serve, self._on_closed = sock, greeting, serve, on_closed
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        threading.Thread(target=self._read, name=f"link {peer} in", daemon=True).start()
        threading.Thread(target=self._write, name=f"link {peer} out", daemon=True).start()

    def answer(self, op: int, request_id: int, code: int, payload: bytes) -> None:
        """Queue an answer. May be called by any thread; without a connection it is dropped."""
        self._answers.put(frame(op, request_id, payload, code))

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
            self._sock.settimeout(GREETING_S)
            while True:
                op, request_id, payload = self._read_frame()
                if self._greeting.is_done:
                    self._serve(self, op, request_id, payload)
                else:
                    self._greet(op, request_id, payload)
        except PayloadError as error:
            limited.error("connection=%s: %s", self.peer, error)
            self.answer(op, request_id, INVALID, str(error).encode())
            self.finish()
        except GreetingRefused as refusal:
            limited.warning("connection=%s: refused: %s", self.peer, refusal)
            self.answer(op, request_id, refusal.code, str(refusal).encode())
            self.finish()
        except OSError as error:
            self.close(str(error))
        except Exception:
            limited.exception("connection=%s: closed after an internal error", self.peer)
            self.close("internal error")

    def _greet(self, op: int, request_id: int, payload: bytes) -> None:
        self.answer(op, request_id, OK, self._greeting.answer(op, payload))
        if self._greeting.is_done:
            self._sock.settimeout(None)

    def _read_frame(self) -> tuple[int, int, bytes]:
        size, op, _, _, request_id, _ = HEADER.unpack(self._receive(HEADER_SIZE))
        limit = FRAME_BYTES_MAX if self._greeting.is_done else STRANGER_BYTES_MAX
        if not FRAME_REST_SIZE <= size <= limit:
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
                self._sock.sendall(b"".join(parts))
            self.close("done")
        except OSError as error:
            self.close(f"cannot write: {error}")

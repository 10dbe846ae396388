"""A broker's questions to another one of its group for pieces of segments. Blocks; for a thread of the system."""

import socket
import time
from contextlib import suppress

from common.unpatched import UnpatchedSockets
from engine.client.dial import Keys, dial
from engine.link.codes import OK
from engine.link.errors import LinkError
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE, HEADER, HEADER_SIZE, frame
from engine.link.operations import FETCH
from engine.link.proof import REPLICA_ROLE

TIMEOUT_S = 3.0


class PeerPieces:
    """One link. It may be used in one thread after the other.

    Args:
        name: of the asking broker.
        timeout_s: time for the connection's steps, and for each answer.
    """

    def __init__(self, address: tuple[str, int], key: Keys, name: str, timeout_s: float = TIMEOUT_S) -> None:
        """Connect. Raises OSError, LinkError."""
        self._sock, _ = dial(
            address, key, role=REPLICA_ROLE, name=name, timeout_s=timeout_s, sockets=UnpatchedSockets
        )  # fmt: skip
        self._timeout_s, self._until_s = timeout_s, 0.0
        self._asked = 0

    _sock: socket.socket

    def __enter__(self) -> "PeerPieces":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the link."""
        self._sock.close()

    def shut_down(self) -> None:
        """Let `ask()` fail that another thread waits for, and every later one."""
        with suppress(OSError):  # closed by the other broker
            self._sock.shutdown(socket.SHUT_RDWR)

    def ask(self, question: bytes) -> bytes:
        """The answer to a FETCH. Raises OSError; LinkError with the sentence of a refusal."""
        self._asked += 1
        self._until_s = time.monotonic() + self._timeout_s
        self._sock.settimeout(self._timeout_s)
        self._sock.sendall(frame(FETCH, self._asked, question))
        size, op, _, code, _, _ = HEADER.unpack(self._read(HEADER_SIZE))
        if not FRAME_REST_SIZE <= size <= FRAME_BYTES_MAX:
            raise LinkError(f"not a link frame: it says {size} bytes")
        answer = self._read(size + 4 - HEADER_SIZE)
        if op != FETCH:
            raise LinkError(f"the answer to FETCH is a frame of operation {op}")
        if code != OK:
            raise LinkError(answer.decode("utf-8", "replace"))
        return answer

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left_s)
            taken = self._sock.recv_into(view[at:])
            if not taken:
                raise ConnectionError("closed by the other broker")
            at += taken
        return bytes(data)

"""A broker's questions to another one of its group for pieces of segments. Blocks; for a thread."""

import socket

from engine.client.dial import dial
from engine.link.codes import OK
from engine.link.errors import LinkError
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE, HEADER, HEADER_SIZE, frame
from engine.link.operations import FETCH
from engine.link.proof import REPLICA_ROLE

TIMEOUT_S = 3.0


class PeerPieces:
    """One link.

    Args:
        name: of the asking broker.
    """

    def __init__(self, address: tuple[str, int], key: bytes, name: str) -> None:
        """Connect. Raises OSError, LinkError."""
        self._sock, _ = dial(address, key, role=REPLICA_ROLE, name=name, timeout_s=TIMEOUT_S)
        self._sock.settimeout(TIMEOUT_S)
        self._asked = 0

    _sock: socket.socket

    def __enter__(self) -> "PeerPieces":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def ask(self, question: bytes) -> bytes:
        """The answer to a FETCH. Raises OSError; LinkError with the sentence of a refusal."""
        self._asked += 1
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
            taken = self._sock.recv_into(view[at:])
            if not taken:
                raise ConnectionError("closed by the other broker")
            at += taken
        return bytes(data)

"""One framed connection to a proxy, whose calls and replies stay bytes."""

import socket

from pipeline.errors import ReplyError

CONNECT_S_MAX = 5.0
REPLY_BYTES_MAX = 16_384_000
BUFFER_BYTES = 1 << 20


class FramedConnection:
    """A socket with one call at a time. After any failure it must be closed: a late reply would answer the next call.

    Attributes:
        is_trusted: whether the proxy has accepted a credential on it. Before, it takes small frames only.
    """

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self._socket = socket.create_connection(address, timeout=min(CONNECT_S_MAX, timeout_s))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(timeout_s)
        self._input = self._socket.makefile("rb", buffering=BUFFER_BYTES)
        self.is_trusted = False

    def send(self, frame: bytes) -> None:
        self._socket.sendall(len(frame).to_bytes(4, "big"))
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """Raises OSError when the connection ends, ReplyError when the other end is no proxy."""
        size = int.from_bytes(self._read(4), "big")
        if size > REPLY_BYTES_MAX:
            raise ReplyError(f"reply: claims {size} bytes: the endpoint is not a proxy of Penstock")
        return self._read(size)

    def close(self) -> None:
        self._input.close()
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = self._input.read(size)
        if len(data) < size:
            raise ConnectionError("the proxy closed the connection")
        return data

"""Raw socket without a Thrift library: bytes out, answers in."""

import contextlib
import select
import socket
import struct
import time
from typing import Any

from thriftpy2.thrift import TApplicationException

from common import contract
from common.contract import decode_reply
from common.net.framing import Incomplete, message_size

ANSWER_S_MAX = 10.0


class RawSocket:
    def __init__(self, address: tuple[str, int], receive_bytes: int | None = None):
        self.sock = socket.socket()
        if receive_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(ANSWER_S_MAX)
        self.sock.connect(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """The other end may close before it took all."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def closed_after_s(self) -> float:
        """How long until the other end closed; fails when it answers, or does neither."""
        began = time.monotonic()
        try:
            data = self.sock.recv(1)
        except ConnectionError:
            data = b""
        assert data == b"", "answered instead of closed"
        return time.monotonic() - began

    def is_silent(self, for_s: float) -> bool:
        """Whether neither bytes nor an end come for that long."""
        return not select.select([self.sock], [], [], for_s)[0]

    def answer(self, framed: bool) -> Any:
        """The decoded response or the TApplicationException of the next answer. Buffered: the last answer, for it has no length."""
        data = self._framed() if framed else self._buffered()
        try:
            return decode_reply(data)
        except TApplicationException as error:
            return error

    def _framed(self) -> bytes:
        (size,) = struct.unpack(">I", self._exactly(4))
        return self._exactly(size)

    def _buffered(self) -> bytes:
        data = b""
        while True:
            chunk = self.sock.recv(1 << 20)
            if not chunk:
                raise ConnectionError("closed")
            data += chunk
            with contextlib.suppress(Incomplete):
                return data[: message_size(data)]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            if not chunk:
                raise ConnectionError("closed")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> "RawSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def encoded_credential(credential: Any) -> bytes:
    """The struct's bytes, as they stand in a call."""
    empty = contract.encode_call("send", 0, contract.SendRequest(credential=credential, messages=[]))
    return empty[empty.index(b"\x0c\0\1\x0c\0\1") + 6 : -10]

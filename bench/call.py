"""Single calls from Python, for set-up and checks."""

import socket
import time

from bench.errors import BenchError
from bench.generator import LoadTarget
from common.contract import Code, Credential, Message, SendRequest, decode_reply, encode_call
from common.credential import mint


class CallError(BenchError):
    """A proxy closed the connection, or the answer does not match the call."""


class Line:
    """A framed connection; one call at a time."""

    def __init__(self, address: tuple[str, int], timeout_s: float | None = None) -> None:
        self.sock = socket.create_connection(address, timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due_ns = 0

    def close(self) -> None:
        self.sock.close()

    def post(self, frame: bytes) -> None:
        """Send a call."""
        self.sock.sendall(len(frame).to_bytes(4, "big") + frame)

    def take(self) -> bytes:
        """Block for the answer's frame.

        Raises:
            CallError: the connection was closed.
        """
        size = int.from_bytes(self._read(4), "big")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise CallError("a proxy closed the connection")
            data += part
        return data


def credential(target: LoadTarget) -> Credential:
    """Mint a credential that is valid for a few minutes."""
    return Credential(*mint(target.app, target.key_id, target.secret, time.time_ns() // 1_000_000))


def send_one(line: Line, proof: Credential, topic: str) -> bool:
    """Send one small message and return whether the engine has stored it."""
    line.post(encode_call("send", 1, SendRequest(credential=proof, messages=[Message(topic=topic, body=b"first")])))
    (result,) = decode_reply(line.take()).results  # type: ignore[attr-defined]
    return result.code == Code.OK

"""Bytes of the link that tests make by hand, independent of the code under test."""

import hashlib
import hmac
import json
import socket
import struct

HELLO, AUTH, APPEND, TOPIC, PULL, READ, ADMIN, CANCEL = 1, 2, 10, 11, 20, 21, 30, 22
MEMORY, FSYNC = 1, 2


def frame(op: int, payload: bytes = b"", request_id: int = 1) -> bytes:
    return struct.pack("<IBBHII", 12 + len(payload), op, 0, 0, request_id, 0) + payload


def record(message: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(message), 0) + message


def batch(topic_id: int, queue: int, messages: list[bytes]) -> bytes:
    """One batch as a proxy writes it, padded to a multiple of 8."""
    records = b"".join(map(record, messages))
    head = struct.pack("<IIHBBIIIIIQq", 0, 48 + len(records), 0x5042, 0, 0, 0, topic_id, queue, len(messages), 0, 0, 0)
    return head + records + bytes(-len(records) % 8)


def checked(topic_id: int, queue: int, shown: bytes, window_ms: int = 600_000) -> bytes:
    """A batch of one message with that id, which is to be checked for duplicates."""
    made = batch(topic_id, queue, [b"\x0b\x00\x06" + struct.pack(">i", len(shown)) + shown + b"\0"])
    return made[:11] + b"\1" + made[12:28] + struct.pack("<I", window_ms) + made[32:]


def append(durability: int, *batches: bytes) -> bytes:
    return struct.pack("<B3xI", durability, len(batches)) + b"".join(batches)


def results(payload: bytes) -> list[tuple[int, int]]:
    """(code, base offset) of each batch of an APPEND answer."""
    return [(code, offset) for code, _, offset in full_results(payload)]


def full_results(payload: bytes) -> list[tuple[int, int, int]]:
    """(code, a duplicate's queue, base offset) of each batch of an APPEND answer."""
    return list(struct.iter_unpack("<HxxIQ", payload))


class RawLink:
    """A link spoken byte by byte over a blocking socket."""

    def __init__(self, port: int, key: bytes | None = None) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 10)
        if key is not None:
            nonce = bytes.fromhex(json.loads(self.ask(HELLO, b'{"version": 1, "role": "test"}')[1])["nonce"])
            proof = hmac.new(key, b"penstock-link/1\n" + nonce, hashlib.sha256).digest()
            assert self.ask(AUTH, proof) == (0, b"")

    def send(self, op: int, payload: bytes = b"", request_id: int = 1) -> None:
        self.sock.sendall(frame(op, payload, request_id))

    def receive(self) -> tuple[int, int, int, bytes]:
        """(op, code, request id, payload) of the next answer."""
        size, op, _, code, request_id, _ = struct.unpack("<IBBHII", self._exactly(16))
        return op, code, request_id, self._exactly(size - 12)

    def ask(self, op: int, payload: bytes = b"", request_id: int = 1) -> tuple[int, bytes]:
        self.send(op, payload, request_id)
        answered, code, echoed, answer = self.receive()
        assert (answered, echoed) == (op, request_id)
        return code, answer

    def is_closed(self) -> bool:
        """Block until the other end closes; False when bytes come instead."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            if not chunk:
                raise ConnectionError("closed")
            data += chunk
        return bytes(data)

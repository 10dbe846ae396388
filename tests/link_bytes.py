"""A link spoken frame by frame over a blocking socket, and the payloads of appends. The codec is that of production."""

import json
import os
import socket
import struct

from engine.link.append import FSYNC, MEMORY, encode_append, read_results
from engine.link.batch import encode_batch
from engine.link.frame import FRAME_REST_SIZE, HEADER, HEADER_SIZE, VERSION
from engine.link.frame import frame as encode_frame
from engine.link.operations import ADMIN, APPEND, AUTH, CANCEL, HELLO, PULL, READ, TOPIC
from engine.link.proof import NONCE_SIZE, client_proof, engine_proof, transcript
from engine.link.record import encode_record as record

__all__ = [
    "ADMIN", "APPEND", "AUTH", "CANCEL", "FSYNC", "HELLO", "MEMORY", "PULL", "READ", "TOPIC", "RawLink", "append",
    "batch", "checked", "frame", "full_results", "record", "results",
]  # fmt: skip

append = encode_append


def frame(op: int, payload: bytes = b"", request_id: int = 1) -> bytes:
    return encode_frame(op, request_id, payload)


def batch(topic_id: int, queue: int, messages: list[bytes]) -> bytes:
    """One batch as a proxy writes it."""
    return encode_batch(topic_id, queue, [record(message) for message in messages])


def checked(topic_id: int, queue: int, shown: bytes, window_ms: int = 600_000) -> bytes:
    """A batch of one message with that id, which is to be checked for duplicates."""
    message = b"\x0b\x00\x06" + struct.pack(">i", len(shown)) + shown + b"\0"
    return encode_batch(topic_id, queue, [record(message)], window_ms)


def results(payload: bytes) -> list[tuple[int, int]]:
    """(code, base offset) of each batch of an APPEND answer."""
    return [(code, offset) for code, _, offset in read_results(payload)]


def full_results(payload: bytes) -> list[tuple[int, int, int]]:
    """(code, a duplicate's queue, base offset) of each batch of an APPEND answer."""
    return list(read_results(payload))


class RawLink:
    """A link over a blocking socket."""

    def __init__(self, port: int, key: bytes | None = None, role: str = "test") -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 10)
        if key is not None:
            self.prove(key, role)

    def prove(self, key: bytes, role: str) -> None:
        """Greet with the right key of the role, and check the other end's proof."""
        greeting = self.greet(role)
        assert self.ask(AUTH, client_proof(key, greeting)) == (0, engine_proof(key, greeting))

    def greet(self, role: str = "test") -> bytes:
        """Exchange HELLO; returns its transcript."""
        question = json.dumps({"version": VERSION, "role": role, "nonce": os.urandom(NONCE_SIZE).hex()}).encode()
        code, answer = self.ask(HELLO, question)
        assert code == 0, answer
        return transcript(question, answer)

    def send(self, op: int, payload: bytes = b"", request_id: int = 1) -> None:
        self.sock.sendall(frame(op, payload, request_id))

    def receive(self) -> tuple[int, int, int, bytes]:
        """(op, code, request id, payload) of the next answer."""
        size, op, _, code, request_id, _ = HEADER.unpack(self._exactly(HEADER_SIZE))
        return op, code, request_id, self._exactly(size - FRAME_REST_SIZE)

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

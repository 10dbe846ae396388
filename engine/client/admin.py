"""Requests of operators to one engine: blocking, over a plain socket. Needs no gevent."""

import json
import socket
from typing import Any

from engine.client.dial import Hello, dial
from engine.link.codes import OK
from engine.link.errors import LinkError
from engine.link.frame import FRAME_BYTES_MAX, FRAME_REST_SIZE, HEADER, HEADER_SIZE, frame
from engine.link.operations import ADMIN
from engine.link.proof import ADMIN_ROLE


class AdminError(Exception):
    """The engine refused. `code` is a code of the contract, the text one sentence."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class AdminClient:
    """One link for one caller at a time; close it when done, or use it in a `with`."""

    def __init__(self, address: tuple[str, int], admin_key: bytes, *, timeout_s: float = 5.0) -> None:
        self._sock, self.hello = dial(address, admin_key, role=ADMIN_ROLE, timeout_s=timeout_s)
        self._sock.settimeout(timeout_s)
        self._request_id = 0

    hello: Hello
    _sock: socket.socket

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the link."""
        self._sock.close()

    def call(self, op: int, payload: bytes) -> tuple[int, bytes]:
        """Send one request and wait for (code, payload).

        Raises OSError, also after `timeout_s`; LinkError for a malformed answer.
        """
        self.send(op, payload)
        return self.receive()

    def send(self, op: int, payload: bytes) -> None:
        """Send one request; `receive()` comes before the next one. Raises OSError."""
        self._request_id += 1
        self._sock.sendall(frame(op, self._request_id, payload))

    def fileno(self) -> int:
        """For `select`: readable once the answer begins to come."""
        return self._sock.fileno()

    def receive(self) -> tuple[int, bytes]:
        """(code, payload) of the request that was sent last. Raises as `call`."""
        size, _, _, code, request_id, _ = HEADER.unpack(self._receive(HEADER_SIZE))
        if not FRAME_REST_SIZE <= size <= FRAME_BYTES_MAX or request_id != self._request_id:
            raise LinkError(
                f"not an answer to request {self._request_id}: frame of {size} bytes for request {request_id}"
            )
        return code, self._receive(size + 4 - HEADER_SIZE)

    def ask(self, verb: str, **options: Any) -> dict[str, Any]:
        """Send one ADMIN verb: status, topics, groups, lag, reset, stop. Raises AdminError, OSError, LinkError."""
        given = {name: value for name, value in options.items() if value is not None}
        code, payload = self.call(ADMIN, json.dumps({"verb": verb, **given}).encode())
        if code != OK:
            raise AdminError(code, payload.decode("utf-8", "replace"))
        return json.loads(payload)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._sock.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError("the engine closed the link")
            data += chunk
        return bytes(data)


def status(address: tuple[str, int], admin_key: bytes) -> dict[str, Any]:
    """The engine's figures."""
    with AdminClient(address, admin_key) as admin:
        return admin.ask("status")


def topics(
    address: tuple[str, int], admin_key: bytes, prefix: str = "", after: str = "", limit: int = 1000
) -> list[dict]:
    """Topics of the engine after the name `after`, in the order of their names."""
    with AdminClient(address, admin_key) as admin:
        return admin.ask("topics", prefix=prefix, after=after, limit=limit)["topics"]


def groups(
    address: tuple[str, int], admin_key: bytes, prefix: str = "", after: str = "", limit: int = 1000
) -> list[str]:
    """Groups that have pulled, after the name `after`, in the order of their names."""
    with AdminClient(address, admin_key) as admin:
        return admin.ask("groups", prefix=prefix, after=after, limit=limit)["groups"]


def lag(
    address: tuple[str, int], admin_key: bytes, group: str, topic: str | None = None, *, detail: bool = False
) -> list[dict]:
    """One row per queue: first, end, progress, in_flight, lag.

    Args:
        detail: adds lag_bytes, estimated from the newest record's size, and lag_s, the age of the oldest open message.
    """
    with AdminClient(address, admin_key) as admin:
        return admin.ask("lag", group=group, topic=topic, detail=detail or None)["queues"]


def reset(
    address: tuple[str, int], admin_key: bytes, group: str, topic: str, to: str | int | dict[str, int], *,
    queue: int | None = None, preview: bool = False,
) -> list[dict]:  # fmt: skip
    """Move a group; returns one row per queue: old and new offset. `preview` changes nothing.

    Args:
        to: "earliest", "latest", an offset, {"time_ms": Unix time}, {"shift": messages, back when negative} or
            {"offsets": {queue's number as text: offset}}, which moves just those queues.
    """
    with AdminClient(address, admin_key) as admin:
        return admin.ask("reset", group=group, topic=topic, to=to, queue=queue, preview=preview or None)["moved"]


def stop(address: tuple[str, int], admin_key: bytes) -> None:
    """Stop the engine as SIGTERM does. Returns when the engine has accepted the request, before it has ended."""
    with AdminClient(address, admin_key) as admin:
        admin.ask("stop")

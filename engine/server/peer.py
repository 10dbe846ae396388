"""What the server remembers of one link connection: whether it has proved itself, and what waits for it."""

import hashlib
import hmac
import json

from engine.link.layout import AUTH_CONTEXT, VERSION
from engine.server.errors import RequestError


class Peer:
    """State of one connection. `waiting`: request id -> how to withdraw what waits under it."""

    __slots__ = ("authenticated", "deadline_ms", "instance", "name", "nonce", "waiting")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms  # to be authenticated by
        self.authenticated = False
        self.nonce = b""
        self.name = ""
        self.instance: int | None = None  # of a producer proxy that listens for replies
        self.waiting: dict = {}


class Greeter:
    """HELLO and AUTH: a challenge, and the proof that the other end knows the cluster's key. The key never travels."""

    def __init__(self, cluster_key: bytes, log_id: bytes, broker_group: str, random_bytes) -> None:
        self._key, self._log_id, self._broker_group = cluster_key, log_id, broker_group
        self._random_bytes = random_bytes

    def hello(self, peer: Peer, payload: bytes) -> bytes:
        """Answer a HELLO with a fresh nonce. Raises RequestError when it is none of this version."""
        try:
            asked = json.loads(payload)
            version = asked["version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RequestError("HELLO: a JSON object with version and role") from None
        if version != VERSION:
            raise RequestError(f"HELLO: this engine speaks link version {VERSION}")
        peer.name = str(asked.get("name") or asked.get("role") or "")[:100]
        peer.nonce = self._random_bytes(16)
        answer = {
            "version": VERSION,
            "log_id": self._log_id.hex(),
            "broker_group": self._broker_group,
            "nonce": peer.nonce.hex(),
        }
        return json.dumps(answer).encode()

    def prove(self, peer: Peer, payload: bytes) -> bool:
        """Whether the payload proves knowledge of the key; a nonce serves one attempt."""
        nonce, peer.nonce = peer.nonce, b""
        if not nonce:
            return False
        expected = hmac.new(self._key, AUTH_CONTEXT + nonce, hashlib.sha256).digest()
        peer.authenticated = hmac.compare_digest(expected, payload)
        return peer.authenticated

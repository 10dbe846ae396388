"""HELLO and AUTH: a challenge, and the proof that the peer knows the cluster key. The key never travels."""

import hashlib
import hmac
import json
import logging
from collections.abc import Callable

from engine.link import layout
from engine.ops.checks import json_object, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer, PeerState

log = logging.getLogger("penstock.engine")
NAME_CHARS_MAX = 100
NONCE_BYTES = 16


class Handshake:
    """The only operations of a peer that is not authenticated.

    Args:
        cluster_key: the secret that all processes of a cluster know.
        log_id: of the engine's log; peers learn by it that another log answers.
        broker_group: the group of this engine, as the configuration names it.
        random_bytes: makes nonces.
        on_authenticated: called with a peer that has authenticated.
    """

    def __init__(
        self, cluster_key: bytes, log_id: bytes, broker_group: str, random_bytes: Callable[[int], bytes],
        on_authenticated: Callable[[Peer], None],
    ) -> None:  # fmt: skip
        self._key, self._log_id, self._broker_group = cluster_key, log_id, broker_group
        self._random_bytes, self._on_authenticated = random_bytes, on_authenticated

    def on_request(self, peer: Peer, op: int, request_id: int, payload: bytes) -> None:
        """Serve HELLO or AUTH; any other operation closes the connection."""
        if op == layout.HELLO:
            try:
                peer.send_frame(op, request_id, layout.OK, [self._hello(peer.peer_state, payload)])
            except RequestError as error:
                peer.send_frame(op, request_id, error.code, [str(error).encode()])
                peer.close_when_sent()
        elif op == layout.AUTH and self._prove(peer.peer_state, payload):
            self._on_authenticated(peer)
            peer.trust()
            peer.send_frame(op, request_id, layout.OK, [])
        elif op == layout.AUTH:
            log.warning("link=%s: authentication failed: the peer has another cluster key", peer.peer_state.name)
            peer.send_frame(op, request_id, layout.UNAUTHENTICATED, [b"AUTH: the engine has another cluster key"])
            peer.close_when_sent()
        else:
            peer.close("not authenticated")

    def _hello(self, state: PeerState, payload: bytes) -> bytes:
        """The answer with a fresh nonce. Raises RequestError when the peer speaks another version."""
        asked = json_object(payload, "HELLO: send a JSON object with version and role")
        if "version" not in asked:
            raise RequestError("HELLO: send a JSON object with version and role")
        if asked["version"] != layout.VERSION:
            raise RequestError(
                f"HELLO: link version {shown(asked['version'])}: this engine speaks link version {layout.VERSION}"
            )
        state.name = str(asked.get("name") or asked.get("role") or "")[:NAME_CHARS_MAX]
        state.nonce = self._random_bytes(NONCE_BYTES)
        answer = {
            "version": layout.VERSION,
            "log_id": self._log_id.hex(),
            "broker_group": self._broker_group,
            "nonce": state.nonce.hex(),
        }
        return json.dumps(answer).encode()

    def _prove(self, state: PeerState, payload: bytes) -> bool:
        """Whether the payload proves knowledge of the key. A nonce serves one attempt."""
        nonce, state.nonce = state.nonce, b""
        if not nonce:
            return False
        expected = hmac.new(self._key, layout.AUTH_CONTEXT + nonce, hashlib.sha256).digest()
        state.authenticated = hmac.compare_digest(expected, payload)
        return state.authenticated

"""HELLO and AUTH: client and engine prove to each other that they know the key of the link's role."""

import json
import logging
from collections.abc import Callable, Mapping

from common.limited_log import LimitedLog
from engine.link import layout
from engine.link.proof import NONCE_SIZE, client_proof, engine_proof, is_proof, transcript
from engine.ops.checks import json_object, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer, PeerState
from engine.ops.roles import ADMIN, CLUSTER, LinkKeys, right_to, role_of

limited = LimitedLog(logging.getLogger("penstock.engine"))
NAME_CHARS_MAX = 100


class Handshake:
    """The only operations of a peer that is not authenticated, and the refusal of those that its role does not have.

    Args:
        identity: returns the fields of HELLO's answer that say which engine this is; see `Hello` in
            `engine/client/dial.py`.
        random_bytes: makes nonces. keys: as given, with what was refused.
        on_authenticated: called with a peer that has authenticated.
    """

    def __init__(
        self, keys: LinkKeys, identity: Callable[[], Mapping[str, object]], random_bytes: Callable[[int], bytes],
        on_authenticated: Callable[[Peer], None],
    ) -> None:  # fmt: skip
        self.keys, self._identity = keys, identity
        self._random_bytes, self._on_authenticated = random_bytes, on_authenticated

    def on_request(self, peer: Peer, op: int, request_id: int, payload: bytes) -> None:
        """Serve one HELLO, and AUTH; anything else closes the connection at once, also what follows a refusal.

        A greeting costs far more than its bytes, and a peer that does not read would fill the output with answers.
        Raises RequestError for a peer that has authenticated.
        """
        state = peer.peer_state
        if state.authenticated:
            raise self._forbidden(state, op)
        if op not in (layout.HELLO, layout.AUTH) or state.is_refused or (op == layout.HELLO and state.is_greeted):
            peer.close("not authenticated")
            return
        state.is_greeted = True
        serve = self._greet if op == layout.HELLO else self._authenticate
        try:
            answer = serve(state, payload)
        except RequestError as error:
            state.is_refused = True
            peer.send_frame(op, request_id, error.code, [str(error).encode()])
            peer.close_when_sent()
            return
        peer.send_frame(op, request_id, layout.OK, [answer])
        if op == layout.AUTH:
            self._on_authenticated(peer)
            peer.trust()

    def _greet(self, state: PeerState, payload: bytes) -> bytes:
        """HELLO's answer with a fresh nonce. Raises RequestError."""
        asked = json_object(payload, "HELLO: send a JSON object with version, role and nonce")
        if "version" not in asked:
            raise RequestError("HELLO: send a JSON object with version, role and nonce")
        if asked["version"] != layout.VERSION:
            raise RequestError(
                f"HELLO: link version {shown(asked['version'])}: this engine speaks link version {layout.VERSION}"
            )
        role, nonce = asked.get("role"), asked.get("nonce")
        if not isinstance(role, str) or not 1 <= len(role) <= NAME_CHARS_MAX:
            raise RequestError(f"HELLO: role {shown(role)}: use a text of 1 to {NAME_CHARS_MAX} characters")
        if not isinstance(nonce, str) or len(nonce) != 2 * NONCE_SIZE:
            raise RequestError(f"HELLO: nonce {shown(nonce)}: use {NONCE_SIZE} bytes in hexadecimal")
        name = asked.get("name", role)
        if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX:
            raise RequestError(f"HELLO: name {shown(name)}: use a text of 1 to {NAME_CHARS_MAX} characters")
        lane = asked.get("lane", "")
        if not isinstance(lane, str) or len(lane) > NAME_CHARS_MAX:
            raise RequestError(f"HELLO: lane {shown(lane)}: use a text of at most {NAME_CHARS_MAX} characters")
        state.name, state.role, state.lane = name, role, lane
        answer = {"version": layout.VERSION, "nonce": self._random_bytes(NONCE_SIZE).hex(), **self._identity()}
        if self.keys.by_cluster_key:
            answer["by_cluster_key"] = self.keys.by_cluster_key
        encoded = json.dumps(answer).encode()
        state.greeting = transcript(payload, encoded)
        return encoded

    def _authenticate(self, state: PeerState, payload: bytes) -> bytes:
        """The engine's proof, for a right one of the peer. A greeting serves one attempt. Raises RequestError."""
        greeting, state.greeting = state.greeting, b""
        role = role_of(state.role)
        keys = self.keys.of(role.key)
        if greeting and not keys:
            raise self._refusal(state, f"this engine has no administrator's key: start it with --{role.key}-key")
        found = [key for key in keys if greeting and is_proof(client_proof(key, greeting), payload)]
        if not found:
            raise self._refusal(state, self._key_fault(role.key, greeting, payload))
        state.authenticated, state.operations = True, role.operations
        return engine_proof(found[0], greeting)

    def _key_fault(self, key: str, greeting: bytes, payload: bytes) -> str:
        """What is wrong with the key of a peer, for its log."""
        if key == CLUSTER:
            return "the engine has another cluster key"
        if key == ADMIN:
            return "the engine has another administrator's key"
        keys = self.keys
        if greeting and self._is_own(key) and is_proof(client_proof(keys.cluster, greeting), payload):
            return f"the engine does not take the cluster key for a {key}: start this process with --{key}-key"
        if not self._is_own(key):
            return f"the engine takes the cluster key for a {key}, as it was started without --{key}-key"
        return f"the engine has another {key} key"

    def _is_own(self, key: str) -> bool:
        return self.keys.of(key) != (self.keys.cluster,)

    def _refusal(self, state: PeerState, reason: str) -> RequestError:
        limited.warning("link=%s: authentication failed: %s", state.name, reason)
        return RequestError(f"AUTH: {reason}", layout.UNAUTHENTICATED)

    def _forbidden(self, state: PeerState, op: int) -> RequestError:
        """The refusal of an operation that the peer's role does not have."""
        needed = right_to(op)
        if not needed:
            return RequestError(f"op {op}: unknown to this engine")
        self.keys.forbidden += 1
        sentence = f"{needed}, and this one has the role {state.role}"
        limited.warning("link=%s: refused: %s", state.name, sentence, about=state.role)
        return RequestError(sentence, layout.FORBIDDEN)

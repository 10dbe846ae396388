"""HELLO and AUTH at the bridge's end of a link: the same proofs as the engine's, for one role and with the cluster key."""

import json
import os
from typing import Any

from engine.link.codes import INVALID, UNAUTHENTICATED
from engine.link.frame import VERSION
from engine.link.operations import AUTH, HELLO
from engine.link.proof import KAFKA_BRIDGE_ROLE, NONCE_SIZE, client_proof, engine_proof, is_proof, transcript


class GreetingRefused(Exception):
    """The other end may not use this bridge. The sentence is its answer, after which the link is closed."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class BridgeGreeting:
    """One link's greeting.

    Args:
        epoch: of this bridge's start.
    Attributes:
        is_done: the other end has proved that it knows the key.
    """

    def __init__(self, key: bytes, epoch: str) -> None:
        self._key, self._epoch, self._greeting = key, epoch, b""
        self._is_greeted = False
        self.is_done = False

    def answer(self, op: int, payload: bytes) -> bytes:
        """The answer to HELLO or AUTH. Raises GreetingRefused."""
        if op == HELLO:
            return self._greet(payload)
        if op != AUTH:
            raise GreetingRefused(UNAUTHENTICATED, "not authenticated: send HELLO and AUTH first")
        greeting, self._greeting = self._greeting, b""  # a greeting serves one attempt
        if not greeting or not is_proof(client_proof(self._key, greeting), payload):
            raise GreetingRefused(UNAUTHENTICATED, "AUTH: the Kafka bridge has another cluster key")
        self.is_done = True
        return engine_proof(self._key, greeting)

    def _greet(self, payload: bytes) -> bytes:
        if self._is_greeted:
            raise GreetingRefused(INVALID, "HELLO: a link has one HELLO and one AUTH")
        self._is_greeted = True
        asked = _asked(payload)
        if asked.get("version") != VERSION:
            raise GreetingRefused(INVALID, f"HELLO: this Kafka bridge speaks link version {VERSION}")
        if asked.get("role") != KAFKA_BRIDGE_ROLE:
            raise GreetingRefused(
                INVALID, f"HELLO: this is a Kafka bridge, which serves the role {KAFKA_BRIDGE_ROLE} only"
            )
        nonce = asked.get("nonce")
        if not isinstance(nonce, str) or len(nonce) != 2 * NONCE_SIZE:
            raise GreetingRefused(INVALID, f"HELLO: nonce: use {NONCE_SIZE} bytes in hexadecimal")
        answer = json.dumps(
            {
                "version": VERSION,
                "nonce": os.urandom(NONCE_SIZE).hex(),
                "log_id": "",
                "broker_group": KAFKA_BRIDGE_ROLE,
                "epoch": self._epoch,
            }
        ).encode()
        self._greeting = transcript(payload, answer)
        return answer


def _asked(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):  # RecursionError: some thousand brackets
        found = None
    if not isinstance(found, dict):
        raise GreetingRefused(INVALID, "HELLO: send a JSON object with version, role and nonce")
    return found

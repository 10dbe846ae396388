"""Proofs of HELLO and AUTH: each end shows that it knows the key of the link's role. No key travels.

Both proofs cover the greeting as it was sent and received: versions, role, both nonces, and what the engine says about
itself. The client proves first, so an engine computes no proof for a stranger. The two proofs differ in their prefix,
so neither can be sent back as the other.
"""

import hashlib
import hmac

from engine.link.integers import U32

ADMIN_ROLE = "admin"
"""The role of operators' links. `engine.ops.roles` has the key of each role, and what it may ask for."""
REPLICA_ROLE, CONTROLLER_ROLE = "replica", "controller"
"""Roles of slaves and of controllers: docs/design/0031-switch-over.md."""
KAFKA_BRIDGE_ROLE = "kafka_bridge"
"""The only role that a Kafka bridge serves: docs/design/0034-kafka.md."""

NONCE_SIZE = 16
PROOF_SIZE = 32
_CLIENT, _ENGINE = b"penstock-link/2 client\n", b"penstock-link/2 engine\n"


def transcript(question: bytes, answer: bytes) -> bytes:
    """SHA-256 over HELLO's two payloads."""
    return hashlib.sha256(U32.pack(len(question)) + question + answer).digest()


def client_proof(key: bytes, greeting: bytes) -> bytes:
    """Payload of AUTH. `greeting`: from `transcript`."""
    return hmac.digest(key, _CLIENT + greeting, "sha256")


def engine_proof(key: bytes, greeting: bytes) -> bytes:
    """Payload of AUTH's answer."""
    return hmac.digest(key, _ENGINE + greeting, "sha256")


def is_proof(expected: bytes, received: bytes) -> bool:
    """Whether they are equal, in a time that does not depend on the bytes."""
    return hmac.compare_digest(expected, received)

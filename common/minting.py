"""Mints credentials: the part that clients need, without the configuration.

signature = HMAC-SHA256(secret, "penstock/1\\n" + app + "\\n" + key_id + "\\n" + decimal(issued_at_ms)), where the
secret is the text that `penstock app create` showed, as ASCII bytes.
"""

import hashlib
import hmac
from typing import NamedTuple


class CredentialFields(NamedTuple):
    """Fields with the names of the contract's struct Credential."""

    app: str
    key_id: str
    issued_at_ms: int
    signature: bytes


def mint(app: str, key_id: str, secret: str, now_ms: int) -> CredentialFields:
    """Mint a credential, valid for 300 s at a proxy. Reuse it, so that the proxy finds its verification in the cache."""
    return CredentialFields(app, key_id, now_ms, sign(secret, app, key_id, now_ms))


def sign(secret: str, app: str, key_id: str, issued_at_ms: int) -> bytes:
    text = f"penstock/1\n{app}\n{key_id}\n{issued_at_ms}"
    return hmac.digest(secret.encode(), text.encode(errors="replace"), hashlib.sha256)

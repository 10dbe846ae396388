"""Mints the application's credential and keeps it for a while, as the proxies cache their verdict by its bytes."""

import hashlib
import hmac
import threading
import time

from penstock_client.contract import Credential


class CredentialMint:
    """Thread-safe. The secret never leaves the process; only the signature travels."""

    def __init__(self, app: str, key_id: str, secret: str | bytes, reuse_ms: int, now_s=time.time) -> None:
        self._app = app
        self._key_id = key_id
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._reuse_ms = reuse_ms
        self._now_s = now_s
        self._lock = threading.Lock()
        self._minted: Credential | None = None

    def credential(self) -> Credential:
        now_ms = int(self._now_s() * 1000)
        with self._lock:
            if self._minted is None or not 0 <= now_ms - self._minted.issued_at_ms < self._reuse_ms:
                self._minted = self._mint(now_ms)
            return self._minted

    def _mint(self, now_ms: int) -> Credential:
        signed = f"penstock/1\n{self._app}\n{self._key_id}\n{now_ms}".encode()
        signature = hmac.new(self._secret, signed, hashlib.sha256).digest()
        return Credential(app=self._app, key_id=self._key_id, issued_at_ms=now_ms, signature=signature)

"""Who may send: credentials verified once, by their bytes, until they expire or the configuration changes."""

from common import contract
from common.net.prefix import credential_at_start

CACHED_MAX = 10_000
_HEADER = b"\x80\x01\x00\x01\x00\x00\x00\x04send\x00\x00\x00\x00\x0c\x00\x01\x0c\x00\x01"


def decode_credential(encoded: bytes):
    """The contract's Credential from its fields and STOP, which the walker (or credential_at_start) has found to be whole."""
    _, _, arguments = contract.decode_call(_HEADER + encoded + b"\x00\x00")
    return arguments.request.credential


class Admission:
    """Principals by credential bytes.

    Args:
        verifier: common.credential.Verifier; view: the configuration whose generation voids the cache.
        now_ms: the clock that credentials are held against.
    """

    def __init__(self, verifier, view, now_ms):
        self._verifier, self._view, self._now_ms = verifier, view, now_ms
        self._cache: dict = {}

    def principal(self, encoded: bytes):
        """Who presents these credential bytes. Raises AuthenticationError."""
        found = self._cache.get(encoded)
        if found is None or found.generation != self._view.generation or self._now_ms() > found.expires_at_ms:
            found = self._verifier.verify(decode_credential(encoded))
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            self._cache[encoded] = found
        return found

    def prefix_verifies(self, connection, prefix: bytes) -> bool:
        """Whether a stranger's long call starts with a credential that verifies."""
        from common.errors import AuthenticationError

        encoded = credential_at_start(prefix)
        if encoded is None:
            return False
        try:
            self.principal(encoded)
        except AuthenticationError:
            return False
        return True

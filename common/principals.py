"""Cache of verified credentials, by their bytes, until they expire or the configuration changes."""

from typing import Any

from common.clock import Clock
from common.config.view import ConfigView
from common.contract import Code, Credential, decode_struct
from common.credential import Principal, Verifier
from common.errors import AuthenticationError
from common.key_uses import KeyUses
from common.net.prefix import credential_at_start

REMEMBERED_BYTES_MAX = 1024
"""Size of the largest credential that is remembered. A valid one is under 300 bytes with the longest names. Fields that
this version does not know may add any number of bytes, which are part of what is remembered."""


class Principals:
    """
    Credentials of more than REMEMBERED_BYTES_MAX bytes are verified at each call, so that the memory is bounded.

    Args:
        remembered_max: a full cache is emptied, which costs each credential in it one verification.
    """

    def __init__(self, view: ConfigView, clock: Clock, remembered_max: int = 10_000):
        self._view, self._clock, self._remembered_max = view, clock, remembered_max
        self._verifier = Verifier(view, clock)
        self._remembered: dict[bytes, Principal] = {}
        self.uses = KeyUses()

    def find(self, encoded: bytes, connection: Any) -> Principal:
        """The bearer of these bytes: a Credential's fields with its STOP, complete as the walker found them.

        The connection is a client's from then on; one whose credential is refused is a stranger again.

        Raises:
            AuthenticationError: the credential is invalid, or its application may not be used over `connection`.
        """
        try:
            found = self._found(encoded)
            found.origin.check(found.app, connection)
        except AuthenticationError as error:
            if error.code == Code.UNAUTHENTICATED:
                connection.distrust()
            raise
        connection.trust()
        return found

    def _found(self, encoded: bytes) -> Principal:
        found = self._remembered.get(encoded)
        if found is None or found.generation != self._view.generation or self._clock.now_ms() > found.expires_at_ms:
            self._remembered.pop(encoded, None)
            found = self._verifier.verify(decode_struct(Credential, encoded))
            if len(encoded) <= REMEMBERED_BYTES_MAX:
                if len(self._remembered) >= self._remembered_max:
                    self._remembered.clear()
                self._remembered[encoded] = found
            self.uses.note(found.app, found.key_id, self._clock.now_ms())
        return found

    def prefix_verifies(self, connection: Any, prefix: bytes) -> bool:
        """Whether a long call of an unverified connection starts with a valid credential: the `prefix_check` of
        common.net.serve.
        """
        encoded = credential_at_start(prefix)
        if encoded is None:
            return False
        try:
            self.find(encoded, connection)
        except AuthenticationError:
            return False
        return True

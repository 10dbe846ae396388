"""Where an application may be used from: networks, and certificates that the other end of a TLS connection has shown."""

from typing import Any, NamedTuple

from common.errors import AuthenticationError
from common.net.tls import certificate_names
from common.networks import is_within


class Origin(NamedTuple):
    """What an application asks of the connections that its calls come by; nothing where both are empty.

    Attributes:
        addresses: networks, one of which has to hold the peer.
        certificates: names, one of which the client's certificate has to bear (see common.net.tls.certificate_names).
    """

    addresses: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()

    def admits(self, connection: Any) -> bool:
        """Whether a connection, of either form, is such a one."""
        if not is_within(connection.peer, self.addresses):
            return False
        return not self.certificates or not set(self.certificates).isdisjoint(certificate_names(connection.tls))

    def check(self, app: str, connection: Any) -> None:
        """Raises AuthenticationError with what is missing."""
        if not is_within(connection.peer, self.addresses):
            raise AuthenticationError(f"credential refused: application={app} may not be used from {connection.peer}")
        if not self.admits(connection):
            raise AuthenticationError(
                f"credential refused: application={app} may only be used over TLS with a client certificate of its own"
            )

"""Allowed origins of an application: networks, and names of client certificates."""

from typing import Any, NamedTuple

from common.errors import AuthenticationError
from common.net.tls import certificate_names
from common.networks import is_within


class Origin(NamedTuple):
    """Connections that an application may use; an empty list allows all.

    Attributes:
        addresses: networks, one of which must contain the peer.
        certificates: names, one of which the client's certificate must have (see common.net.tls.certificate_names).
    """

    addresses: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()

    def admits(self, connection: Any) -> bool:
        """Whether a connection, of either form, is allowed."""
        if not is_within(connection.peer, self.addresses):
            return False
        return not self.certificates or not set(self.certificates).isdisjoint(certificate_names(connection.tls))

    def check(self, app: str, connection: Any) -> None:
        """Raise AuthenticationError, with the reason, for a connection that is not allowed."""
        if not is_within(connection.peer, self.addresses):
            raise AuthenticationError(f"credential rejected: application {app} may not be used from {connection.peer}")
        if not self.admits(connection):
            raise AuthenticationError(
                f"credential rejected: application {app} needs TLS with one of its client certificates"
            )

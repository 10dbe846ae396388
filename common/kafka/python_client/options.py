"""Options of kafka-python's clients, and the cause when one cannot be opened."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kafka import errors
from kafka.net.compat import KafkaNetClient

from common.kafka.connection import KafkaConnection
from common.kafka.errors import ClusterUnreachable, KafkaFault, LoginRefused

PROBE_TIMEOUT_S = 2.0
_NOT_OPENED = (errors.KafkaTimeoutError, errors.KafkaConnectionError, errors.SaslAuthenticationFailedError)
_LOGIN = (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError)
_Client = TypeVar("_Client")


def common_options(connection: KafkaConnection) -> dict[str, Any]:
    """Options of every client: producer, reader and administration."""
    options: dict[str, Any] = {
        "bootstrap_servers": list(connection.bootstrap),
        "client_id": "penstock",
        "bootstrap_timeout_ms": int(connection.connect_timeout_s * 1000),
        "security_protocol": connection.protocol,
        "reconnect_backoff_ms": 100,
        "reconnect_backoff_max_ms": 1000,
        "retry_backoff_ms": 100,
    }
    if connection.uses_login:
        options["sasl_mechanism"] = connection.mechanism
        options["sasl_plain_username"] = connection.user
        options["sasl_plain_password"] = connection.password
    if connection.uses_tls:
        options["ssl_context"] = tls_context(connection)
    return options


def tls_context(connection: KafkaConnection) -> ssl.SSLContext:
    """Raises LoginRefused: a certificate file cannot be used."""
    try:
        context = ssl.create_default_context(cafile=connection.authority_file)
        if connection.certificate_file:
            context.load_cert_chain(connection.certificate_file, connection.key_file)
    except (OSError, ssl.SSLError) as fault:
        raise LoginRefused(f'kafka "{connection.name}": certificates: {fault}') from fault
    return context


class EndedConnections:
    """Connections of a client that had been made and have ended, since it was opened."""

    def __init__(self) -> None:
        self.count = 0
        self._watched: set[int] = set()

    def watch(self, made: Any) -> None:
        """Count the end of a connection, which may be known already."""
        if id(made) in self._watched:
            return
        self._watched.add(id(made))

        def has_ended(_: object) -> None:
            self._watched.discard(id(made))
            self.count += made.init_future.succeeded()

        made.close_future.add_both(has_ended)


def opened(
    connection: KafkaConnection, make: Callable[..., _Client], options: dict[str, Any],
    ended: EndedConnections | None = None,
) -> _Client:  # fmt: skip
    """Make a client.

    kafka-python says only that it could not bootstrap, whether the address, the certificate or the password was wrong.
    The faults of its connections say which.
    """
    opening: list[KafkaNetClient] = []
    opened_ones: list[KafkaNetClient] = []
    causes: list[BaseException] = []

    def network_client(**configs: Any) -> KafkaNetClient:
        client = KafkaNetClient(**configs)
        connect = client._manager.get_connection

        def watched(*arguments: Any, **named: Any) -> Any:
            made = connect(*arguments, **named)
            if ended is not None:
                ended.watch(made)
            if not opened_ones:  # still opening
                made.init_future.add_errback(causes.append)
            return made

        client._manager.get_connection = watched
        opening.append(client)
        return client

    try:
        made = make(**options, kafka_client=network_client)
    except _NOT_OPENED as fault:
        for each in opening:
            with contextlib.suppress(Exception):
                each.close()
        raise _opening_fault(connection, causes, fault) from fault
    opened_ones += opening
    return made


def _opening_fault(connection: KafkaConnection, causes: Sequence[BaseException], fault: Exception) -> KafkaFault:
    name, where = f'kafka "{connection.name}"', ", ".join(connection.bootstrap)
    for cause in causes:
        if isinstance(cause, _LOGIN):
            return LoginRefused(f"{name}: {where} refused the login as {connection.user}: {cause.args[0]}")
    if tls := _tls_fault(connection):
        return LoginRefused(f"{name}: TLS with {where} failed: {tls}")
    ends = [str(cause) for cause in causes if not isinstance(cause, errors.RequestTimedOutError)]
    if connection.uses_login and ends and "disconnected" in ends[-1]:
        # A broker closes the connection after its answer, and the library may see the end before the answer. The last try
        # may have had too little time to see either.
        return LoginRefused(
            f"{name}: {where} ended the login as {connection.user}: wrong user or password, or no listener for SASL"
        )
    timeout_s = connection.connect_timeout_s
    why = str(causes[-1] if causes else fault) or "none of them told why"
    return ClusterUnreachable(f"{name}: no broker answered at {where} within {timeout_s:g} s: {why}")


def _tls_fault(connection: KafkaConnection) -> str:
    """Why the handshake with the first reachable broker fails; empty: it does not, or none is reachable."""
    if not connection.uses_tls:
        return ""
    for address in connection.bootstrap:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S) as plain:
                tls_context(connection).wrap_socket(plain, server_hostname=host).close()
                return ""
        except ssl.SSLError as fault:
            return str(fault)
        except OSError:
            continue
    return ""

"""Dialling ZooKeeper: the server of this machine first, none for long, and the length of the session that it grants.

A process is also the user whose credential lies in a node that it can read, from the first request of each connection.
It has to be so while the connection is set up: ZooKeeper answers a credential out of turn, which ends kazoo's connection
when another request waits for its answer.
"""

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.connection import AUTH_XID, ConnectionHandler
from kazoo.protocol.serialization import Auth, GetData

from common.address import is_own_machine

DIGEST = "digest"
DIAL_SHARE = 0.25
"""Part of the session's time in which a server has to take a connection: one whose machine is gone gives no answer."""
READ_SHARE = 2 / 3
"""Part of the granted time that kazoo waits for an answer."""


class NearFirst(ConnectionHandler):  # type: ignore[misc]
    """Kazoo's connection to one server after the other.

    A machine that runs a server ends together with it. So none of its processes waits for a server of another machine
    that has ended, and the others do not wait for its server.

    Attributes:
        granted_s: length of the session that the server has granted; 0 before the first one.
        on_granted: called in kazoo's thread once it is known.
        credential_path: the node with the other user's credential, which may be missing; empty: there is none.
        connections: number of those that were set up.
    """

    granted_s = 0.0
    credential_path = ""
    connections = 0
    _xid: int
    on_granted: Callable[[], None]

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        hosts: list[tuple[str, str, int]] = super()._expand_client_hosts()
        return sorted(hosts, key=lambda each: not is_own_machine(each[1]))

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_ms, connect_ms = super()._connect(host, hostip, port)
        self.granted_s = round(read_ms / READ_SHARE) / 1000
        self.on_granted()
        if self.credential_path:
            self._authenticate_as_other(connect_ms / 1000)
        self.connections += 1
        return read_ms, connect_ms

    def _authenticate_as_other(self, timeout_s: float) -> None:
        self._xid = (self._xid % 2147483647) + 1
        self._submit(GetData(self.credential_path, None), timeout_s, self._xid)
        header, buffer, offset = self._read_header(timeout_s)
        if header.err:  # the node is missing, or this user may not read it
            return
        data, _ = GetData.deserialize(buffer, offset)
        other = DIGEST, data.decode()
        if other not in self.client.auth_data:
            self.client.auth_data.add(other)
            self._invoke(timeout_s, Auth(0, *other), xid=AUTH_XID)


def dial_near_first(client: KazooClient, on_granted: Callable[[], None], credential_path: str = "") -> NearFirst:
    """Have a client that is not started yet dial so."""
    before = client._connection
    client._connection = made = NearFirst(
        client, before.retry_sleeper, logger=client.logger, sasl_options=before.sasl_options
    )
    made.on_granted, made.credential_path = on_granted, credential_path
    return made


def with_short_dials(handler: Any) -> Any:
    """Kazoo's handler, which gives up a server after DIAL_SHARE of the time that kazoo allows."""
    create = handler.create_connection

    def create_connection(*arguments: Any, timeout: float, **options: Any) -> Any:
        return create(*arguments, timeout=timeout * DIAL_SHARE, **options)

    handler.create_connection = create_connection
    return handler

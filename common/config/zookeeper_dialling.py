"""Dialling ZooKeeper: the server of this machine first, none for long, and the length of the session that it grants.

A server that has less than a process has seen closes each of its connections, without an answer: it may be behind the
others. One that was emptied or put back from an older copy never has more, so after a while it is asked for a new
session, see `docs/design/0025-configuration-that-is-lost.md`.

A process is also the user whose credential lies in a node that it can read, from the first request of each connection.
It has to be so while the connection is set up: ZooKeeper answers a credential out of turn, which ends kazoo's connection
when another request waits for its answer.
"""

import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.connection import AUTH_XID, ConnectionHandler
from kazoo.protocol.serialization import Auth, Connect, Exists, GetData
from kazoo.protocol.states import KeeperState

from common.address import is_own_machine

DIGEST = "digest"
DIAL_SHARE = 0.25
"""Part of the session's time in which a server has to take a connection: one whose machine is gone gives no answer."""
READ_SHARE = 2 / 3
"""Part of the granted time that kazoo waits for an answer."""
ELECTION_SHARE = 0.5
"""Part of the session's time in which the own server is dialled alone, while it closes connections without an answer."""


class NearFirst(ConnectionHandler):  # type: ignore[misc]
    """Kazoo's connection to one server after the other.

    A machine that runs a server ends together with it. So none of its processes waits for a server of another machine
    that has ended, and the others do not wait for its server. A server that took no connection in some time is left out
    for twice that time, while there are others: they may be choosing a leader, and take the session in a moment. The own
    server closes connections while it chooses one with the others, which serve no earlier than it: no time is lost on
    one that may be silent.

    Attributes:
        granted_s: length of the session that the server has granted; 0 before the first one.
        on_granted: called in kazoo's thread once it is known.
        credential_path: the node with the other user's credential, which may be missing; empty: there is none.
        connections: number of those that were set up.
        on_less: called in kazoo's thread with the last change that the client has seen and the server's last one, which
            is an earlier one.
    """

    granted_s = 0.0
    credential_path = ""
    connections = 0
    _xid: int
    _refused_since_s: float | None = (
        None  # servers have taken connections since then, and closed them without an answer
    )
    _own_refused_since_s: float | None = None  # the same of the server of this machine
    _is_refused = _is_anew = False  # of the present attempt
    on_granted: Callable[[], None]
    on_less: Callable[[int, int], None]
    _silent_until_s: dict[tuple[str, int], float]

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        now_s = time.monotonic()
        self._silent_until_s = {each: until_s for each, until_s in self._silent_until_s.items() if until_s > now_s}
        hosts: list[tuple[str, str, int]] = super()._expand_client_hosts()
        hosts = [each for each in hosts if each[1:] not in self._silent_until_s] or hosts
        return sorted(hosts, key=lambda each: not is_own_machine(each[1]))

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: Any) -> Any:
        if not is_own_machine(hostip):
            if not self._own_elects:
                return super()._connect_attempt(host, hostip, port, retry)
            retry.reset()  # the next round begins after the shortest pause
            return None  # as an attempt that failed
        status = super()._connect_attempt(host, hostip, port, retry)
        if not self._is_refused:
            self._own_refused_since_s = None
        elif self._own_refused_since_s is None:
            self._own_refused_since_s = time.monotonic()
        return status

    @property
    def _own_elects(self) -> bool:
        """Whether the own server may be choosing a leader with the others."""
        since_s = self._own_refused_since_s
        return since_s is not None and time.monotonic() - since_s < ELECTION_SHARE * self._session_s

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._is_refused = False
        seen, began_s = 0, time.monotonic()
        try:
            read_ms, connect_ms = super()._connect(host, hostip, port)
        except ConnectionDropped:
            if self._socket is None:
                now_s = time.monotonic()
                self._silent_until_s[hostip, port] = now_s + 2 * (now_s - began_s)
            seen = self.client.last_zxid
            if not (self._is_refused and seen and self._is_refused_for_long):
                raise
            read_ms, connect_ms = self._connect_anew(host, hostip, port)
        self.granted_s = round(read_ms / READ_SHARE) / 1000
        self.on_granted()
        if self.credential_path:
            self._authenticate_as_other(connect_ms / 1000)
        self.connections += 1
        if seen and (has := self._ask(Exists("/", None), connect_ms / 1000)[0].zxid) < seen:
            self.on_less(seen, has)
        return read_ms, connect_ms

    @property
    def _is_refused_for_long(self) -> bool:
        """Whether each server has had the time to take the session."""
        return self._refused_since_s is not None and time.monotonic() - self._refused_since_s >= self._session_s

    @property
    def _session_s(self) -> float:
        return max(self.granted_s, float(self.client._session_timeout) / 1000)

    def _connect_anew(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        """Connect as a client that has no session and has seen nothing.

        The present session ends when a server takes the new one. Else it stays: a server that does not serve, as it has
        no leader, closes connections, too.
        """
        client = self.client
        self._socket.close()
        session, password, seen = client._session_id, client._session_passwd, client.last_zxid
        client._reset_session()
        client.last_zxid, self._is_anew = 0, True
        try:
            times: tuple[float, float] = super()._connect(host, hostip, port)
            return times
        finally:
            if self._is_anew:
                client._session_id, client._session_passwd, client.last_zxid = session, password, seen
            self._is_anew = False

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            answer = super()._invoke(timeout, request, xid)
        except ConnectionDropped:
            self._is_refused = True
            if self._refused_since_s is None:
                self._refused_since_s = time.monotonic()
            raise
        self._is_refused, self._refused_since_s = False, None
        if self._is_anew:
            self._is_anew = False
            self.client._session_callback(KeeperState.EXPIRED_SESSION)
        return answer

    def _ask(self, request: Any, timeout_s: float) -> Any:
        """The header of the answer, the answer and its begin; while a connection is set up."""
        self._xid = (self._xid % 2147483647) + 1
        self._submit(request, timeout_s, self._xid)
        return self._read_header(timeout_s)

    def _authenticate_as_other(self, timeout_s: float) -> None:
        header, buffer, offset = self._ask(GetData(self.credential_path, None), timeout_s)
        if header.err:  # the node is missing, or this user may not read it
            return
        data, _ = GetData.deserialize(buffer, offset)
        other = DIGEST, data.decode()
        if other not in self.client.auth_data:
            self.client.auth_data.add(other)
            self._invoke(timeout_s, Auth(0, *other), xid=AUTH_XID)


def dial_near_first(
    client: KazooClient, on_granted: Callable[[], None], on_less: Callable[[int, int], None], credential_path: str = ""
) -> NearFirst:
    """Have a client that is not started yet dial so."""
    before = client._connection
    client._connection = made = NearFirst(
        client, before.retry_sleeper, logger=client.logger, sasl_options=before.sasl_options
    )
    made.on_granted, made.on_less, made.credential_path = on_granted, on_less, credential_path
    made._silent_until_s = {}
    return made


def with_short_dials(handler: Any) -> Any:
    """Kazoo's handler, which gives up a server after DIAL_SHARE of the time that kazoo allows."""
    create = handler.create_connection

    def create_connection(*arguments: Any, timeout: float, **options: Any) -> Any:
        return create(*arguments, timeout=timeout * DIAL_SHARE, **options)

    handler.create_connection = create_connection
    return handler

"""Connections to several proxies. A proxy that fails is set aside for a growing pause; the others are used in turn."""

import socket
import threading
import time
from typing import Any

from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TSocket
from thriftpy2.transport.buffered import TCyBufferedTransport
from thriftpy2.transport.framed import TCyFramedTransport

from penstock_client.backoff import backoff_s
from penstock_client.errors import CallFailed, ContractError
from penstock_client.options import Options

# Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call is
# preceded by a small one.
UNTRUSTED_CALL_BYTES_MAX = 48 * 1024
# An endpoint answers these for a call that it has not taken: of another service, or one that it refuses unread.
NOT_DONE = (TApplicationException.UNKNOWN_METHOD, TApplicationException.PROTOCOL_ERROR)
# A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back.
ANSWER_MARGIN_S = 0.5


class Connection:
    """One socket with one call at a time.

    After any failure it must be closed: a late answer would go to the next call.
    """

    def __init__(self, host: str, port: int, service: Any, options: Options, deadline_s: float) -> None:
        until_s = min(deadline_s, time.monotonic() + options.connect_timeout_ms / 1000)
        self._socket = _connected(host, port, until_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.ssl_context:
            self._socket.settimeout(_left_s(until_s))
            self._socket = options.ssl_context.wrap_socket(self._socket, server_hostname=host)
        raw = TSocket()
        raw.set_handle(self._socket)
        transport = TCyFramedTransport(raw) if options.framed else TCyBufferedTransport(raw)
        self._client = TClient(service, TCyBinaryProtocol(transport))
        self.trusted = False
        self.used_at_s = time.monotonic()

    def call(self, method: str, request: Any, timeout_s: float, deadline_s: float) -> Any:
        self._socket.settimeout(min(timeout_s, _left_s(deadline_s + ANSWER_MARGIN_S)))
        answer = getattr(self._client, method)(request)
        self.trusted = True
        self.used_at_s = time.monotonic()
        return answer

    def close(self) -> None:
        self._client.close()


def _connected(host: str, port: int, until_s: float) -> socket.socket:
    """Try each address of the name, all of them until that time."""
    failure = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(_left_s(until_s))
            made.connect(address)
            return made
        except OSError as error:
            made.close()
            failure = error
    raise failure


def _left_s(until_s: float) -> float:
    return max(0.001, until_s - time.monotonic())  # 0 would be a socket that does not block


class Endpoint:
    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.idle: list[Connection] = []
        self.is_foreign = False  # its last answer was none of this contract
        self.failures = 0
        self.aside_until_s = 0.0


class Pool:
    """Thread-safe; a connection is used by one thread at a time and the lock is never held over I/O."""

    def __init__(self, endpoints: list[tuple[str, int]], service: Any, options: Options) -> None:
        self._endpoints = [Endpoint(host, port) for host, port in endpoints]
        self._service = service
        self._options = options
        self._lock = threading.Lock()
        self._turn = 0

    def usable_at_s(self) -> float:
        """The monotonic time when the first proxy may be tried again; in the past when one may be tried now."""
        with self._lock:
            return min(endpoint.aside_until_s for endpoint in self._endpoints)

    def call(
        self,
        method: str,
        request: Any,
        timeout_s: float,
        deadline_s: float,
        *,
        size: int = 0,
        hello: Any = None,
        stay: Endpoint | None = None,
    ) -> tuple[Any, Endpoint]:
        """One attempt at the next usable proxy.

        Args:
            timeout_s: for an answer.
            deadline_s: the time by which a connection is made, and ANSWER_MARGIN_S later the answer is here.
            size: approximate size of the request in bytes.
            hello: an empty request with the same credential, sent ahead when `size` is too much for a new connection.
            stay: the proxy to use unless it is set aside.
        Raises:
            CallFailed: no answer of the contract; the proxy has been set aside.
            ContractError: that, and all endpoints have answered so last.
        """
        endpoint = self._choose(stay)
        began_s = time.monotonic()
        failure: Exception | None = None
        try:
            return self._attempt(endpoint, method, request, timeout_s, deadline_s, size, hello), endpoint
        except (CallFailed, ContractError) as error:
            failure = error
            raise
        finally:
            at, took_s = f"{endpoint.host}:{endpoint.port}", time.monotonic() - began_s
            self._options.metrics.call(method, at, took_s, failure)

    def _attempt(
        self,
        endpoint: Endpoint,
        method: str,
        request: Any,
        timeout_s: float,
        deadline_s: float,
        size: int,
        hello: Any,
    ) -> Any:
        connection = self._idle_connection(endpoint)
        sent = False
        try:
            if connection is None:
                connection = Connection(endpoint.host, endpoint.port, self._service, self._options, deadline_s)
            if size > UNTRUSTED_CALL_BYTES_MAX and not connection.trusted:
                connection.call(method, hello, timeout_s, deadline_s)
            sent = True
            answer = connection.call(method, request, timeout_s, deadline_s)
        except TApplicationException as error:
            connection.close()
            reason = f"{endpoint.host}:{endpoint.port} refuses `{method}`: {error.message or f'exception {error.type}'}"
            sent = sent and error.type not in NOT_DONE
            self.set_aside(endpoint)
            if error.type != TApplicationException.INTERNAL_ERROR and self._all_foreign(endpoint):
                raise ContractError(reason, sent=sent) from error
            raise CallFailed(reason, sent=sent) from error
        except Exception as error:  # sockets, TLS and thriftpy2's decoder each raise their own
            if connection is not None:
                connection.close()
            self.set_aside(endpoint)
            raise CallFailed(f"{endpoint.host}:{endpoint.port}: {error or type(error).__name__}", sent=sent) from error
        self._give_back(endpoint, connection)
        return answer

    def set_aside(self, endpoint: Endpoint) -> None:
        """Prefer other proxies for a pause that grows with each failure in a row."""
        with self._lock:
            endpoint.is_foreign = False
            endpoint.failures += 1
            pause_s = backoff_s(endpoint.failures, self._options.backoff_first_ms, self._options.backoff_max_ms)
            endpoint.aside_until_s = time.monotonic() + pause_s
            stale, endpoint.idle = endpoint.idle, []
        for connection in stale:
            connection.close()

    def _all_foreign(self, endpoint: Endpoint) -> bool:
        """Note what a proxy is that was set aside. Where all are, none waits: the next call ends as soon."""
        with self._lock:
            endpoint.is_foreign = True
            if not all(each.is_foreign for each in self._endpoints):
                return False
            for each in self._endpoints:
                each.is_foreign, each.failures, each.aside_until_s = False, 0, 0.0
            return True

    def praise(self, endpoint: Endpoint) -> None:
        """Reset the failures of a proxy that answered."""
        with self._lock:
            endpoint.failures = 0
            endpoint.aside_until_s = 0.0

    def close(self) -> None:
        with self._lock:
            connections = [connection for endpoint in self._endpoints for connection in endpoint.idle]
            for endpoint in self._endpoints:
                endpoint.idle = []
        for connection in connections:
            connection.close()

    def _choose(self, stay: Endpoint | None) -> Endpoint:
        now_s = time.monotonic()
        with self._lock:
            if stay is not None and stay.aside_until_s <= now_s:
                return stay
            self._turn += 1
            count = len(self._endpoints)
            turned = [self._endpoints[(self._turn + step) % count] for step in range(count)]
            return min(turned, key=lambda endpoint: max(endpoint.aside_until_s, now_s))

    def _idle_connection(self, endpoint: Endpoint) -> Connection | None:
        newest_s = time.monotonic() - self._options.idle_ms_max / 1000
        while True:
            with self._lock:
                if not endpoint.idle:
                    return None
                connection = endpoint.idle.pop()
            if connection.used_at_s >= newest_s:
                return connection
            connection.close()

    def _give_back(self, endpoint: Endpoint, connection: Connection) -> None:
        with self._lock:
            endpoint.is_foreign = False
            keep = len(endpoint.idle) < self._options.idle_connections_max
            if keep:
                endpoint.idle.append(connection)
        if not keep:
            connection.close()

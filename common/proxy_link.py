"""One blocking, framed connection to a proxy, for programs of operators.

PenstockError
└── ProxyCallError       the proxy refused the call, or did not answer as a proxy
    └── ProxyUnreachable     no connection, or no answer in time: try again later
"""

import socket
import ssl
from pathlib import Path
from typing import Any

from thriftpy2.thrift import TApplicationException

from common import contract
from common.errors import PenstockError

UNTRUSTED_CALL_BYTES_MAX = 60_000  # a proxy accepts no larger frame before the connection's first valid credential
ANSWER_BYTES_MAX = 16_384_000
CONNECT_S_MAX = 5.0


class ProxyCallError(PenstockError):
    pass


class ProxyUnreachable(ProxyCallError, ConnectionError):
    """Also a ConnectionError, so that a command ends with the exit code for what is worth another try."""


class ProxyLink:
    """A connection, to be used in a `with`.

    Args:
        name: the method that the proxy serves.
        tls_ca: PEM file of the authorities whose certificate the proxy must show for its host; None: no TLS.
    """

    def __init__(self, name: str, address: tuple[str, int], tls_ca: Path | None = None):
        self._name = name
        self._where = f"{address[0]}:{address[1]}"
        self._seqid = 0
        self._trusted = False
        try:
            self._sock = socket.create_connection(address, timeout=CONNECT_S_MAX)
        except OSError as error:
            raise ProxyUnreachable(f"{self._where}: no connection: {error.strerror or error}") from error
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls_ca is not None:
            self._sock = self._secured(address[0], tls_ca)

    def _secured(self, host: str, tls_ca: Path) -> ssl.SSLSocket:
        """The connection under TLS. Raises ProxyCallError: the file or the proxy's certificate is not good."""
        try:
            return ssl.create_default_context(cafile=str(tls_ca)).wrap_socket(self._sock, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            self._sock.close()
            raise ProxyCallError(f"{self._where}: its certificate is not accepted: {error.verify_message}") from error
        except ssl.SSLError as error:
            self._sock.close()
            raise ProxyCallError(
                f"{self._where}: no TLS, or {tls_ca} is no PEM file: {error.reason or error}: check address and file"
            ) from error
        except OSError as error:
            self._sock.close()
            raise ProxyUnreachable(f"{self._where}: no TLS connection: {error.strerror or error}") from error

    def __enter__(self) -> "ProxyLink":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def call(self, request: Any, timeout_s: float, empty: Any = None) -> Any:
        """Send one request and return the response struct.

        Args:
            empty: a request with the same credential that does nothing. It is sent before a request that is too large
                for a new connection.
        Raises:
            ProxyUnreachable: no answer. ProxyCallError: a TApplicationException.
        """
        self._seqid += 1
        seqid = self._seqid  # the extra call, if any, takes the next one
        frame = contract.encode_call(self._name, seqid, request)
        if len(frame) > UNTRUSTED_CALL_BYTES_MAX and not self._trusted and empty is not None:
            self.call(empty, timeout_s)
        try:
            self._sock.settimeout(timeout_s)
            self._sock.sendall(len(frame).to_bytes(4, "big") + frame)
            size = int.from_bytes(self._receive(4), "big")
            if size > ANSWER_BYTES_MAX:
                raise ProxyCallError(f"{self._where}: the answer is not that of a Penstock proxy: check the address")
            response = contract.decode_reply(self._receive(size), seqid)
        except OSError as error:
            raise ProxyUnreachable(f"{self._where}: no connection: {error.strerror or error}") from error
        except TApplicationException as error:
            raise ProxyCallError(f"{self._where}: {error.message}") from error
        self._trusted = True
        return response

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._sock.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the proxy closed the connection")
            data += chunk
        return bytes(data)

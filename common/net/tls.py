"""TLS: a server's context, and a stream that works in memory, so that any socket can carry it."""

import ssl
from typing import Any, Protocol

READ_BYTES = 65_536


class TlsContext(Protocol):
    """The part of an ssl.SSLContext that a listener needs. It may use another one for later connections."""

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool = False
    ) -> ssl.SSLObject: ...


def server_context(certificate: str, key: str, client_ca: str | None = None) -> ssl.SSLContext:
    """Return a context for a listener, TLS 1.2 or newer.

    Args:
        certificate: PEM file with the chain; key: PEM file with its private key.
        client_ca: PEM file; with it a client may show a certificate, which this authority must have signed.
    Raises:
        OSError, ssl.SSLError: a file is missing or invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL  # each call shows whether its application needs one
    return context


def certificate_names(tls: Any) -> tuple[str, ...]:
    """Return the names in the client's verified certificate: common names of the subject, DNS names, URIs.

    Empty without a certificate.

    Args:
        tls: the connection's ssl.SSLObject, or None.
    """
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:
        return ()
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    others = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    return (*common, *others)


class TlsStream:
    """`recv` and `send` of a co-operative socket over TLS; one reader, one writer.

    Attributes:
        tls: its ssl.SSLObject; None before the first bytes.
    """

    def __init__(self, sock: Any, context: TlsContext):
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._rest = memoryview(b"")  # encrypted bytes that the socket has not taken
        self._taken = 0  # bytes of the caller in them
        self._context = context
        self.tls: ssl.SSLObject | None = None

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end. Includes the handshake. Raises ssl.SSLError, OSError."""
        if self.tls is None:  # a session costs 40 KiB: not before its first bytes are here
            if not (data := self._sock.recv(READ_BYTES)):
                return b""
            self._in.write(data)
            self.tls = self._context.wrap_bio(self._in, self._out, server_side=True)
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLWantReadError:
                if self._out.pending:
                    self._sock.sendall(self._out.read())
                data = self._sock.recv(READ_BYTES)
                if not data:
                    return b""
                self._in.write(data)

    def send(self, data: bytes | memoryview) -> int:
        """Send all of `data`, which should be short, and return its size. Raises ssl.SSLError, OSError.

        After a gevent.Timeout in it, call it again with the same bytes: it goes on where it was.
        """
        assert self.tls is not None  # an answer follows a call
        if not self._taken:
            self.tls.write(data)
            self._rest, self._taken = memoryview(self._out.read()), len(data)
        while self._rest:
            self._rest = self._rest[self._sock.send(self._rest) :]
        taken, self._taken = self._taken, 0
        return taken

    def shutdown(self, how: int) -> None:
        """End one direction of the connection."""
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()

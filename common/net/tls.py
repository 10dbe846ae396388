"""TLS: a server's context, and a stream that works in memory, so that any socket can carry it."""

import ssl
from typing import Any

READ_BYTES = 65_536


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
    """`recv` and `sendall` of a co-operative socket over TLS; one reader, one writer. `tls` is its ssl.SSLObject."""

    def __init__(self, sock: Any, context: ssl.SSLContext):
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end. Includes the handshake. Raises ssl.SSLError, OSError."""
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLWantReadError:
                self._flush()
                data = self._sock.recv(READ_BYTES)
                if not data:
                    return b""
                self._in.write(data)

    def sendall(self, data: bytes) -> None:
        self.tls.write(data)
        self._flush()

    def _flush(self) -> None:
        if self._out.pending:
            self._sock.sendall(self._out.read())

    def close(self) -> None:
        self._sock.close()

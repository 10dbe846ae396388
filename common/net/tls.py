"""TLS: a server's context, and a stream that speaks it in memory so that any socket can carry it."""

import ssl
from typing import Any

READ_BYTES = 65_536


def server_context(certificate: str, key: str, client_ca: str | None = None) -> ssl.SSLContext:
    """TLS 1.2 or newer for a listener.

    Args:
        certificate: PEM file with the chain; key: PEM file with its private key.
        client_ca: PEM file; set, a client may show a certificate, and with one that this authority did not sign there is no connection.
    Raises:
        OSError, ssl.SSLError: a file is missing or does not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL  # whose application needs one is known by the call
    return context


def certificate_names(tls: Any) -> tuple[str, ...]:
    """What the client is called by the certificate that it has shown and that was verified: the subject's common names, and alternative
    names that are DNS names or URIs. Empty without one.

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
    """`recv` and `sendall` of a co-operative socket with TLS between; one reader, one writer. `tls` is its ssl.SSLObject."""

    def __init__(self, sock, context: ssl.SSLContext):
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the end. The handshake happens here. Raises ssl.SSLError, OSError."""
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

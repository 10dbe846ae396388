# cython: language_level=3, boundscheck=False, wraparound=False
"""TLS session of a connection. It works in memory, so that a handshake without progress stalls no other connection."""

import ssl

cdef enum:
    READ_BYTES = 65536


cdef class TlsSession:
    """Server side of one TLS connection. Its methods raise ssl.SSLError.

    Args:
        context: a server-side ssl.SSLContext.
    """

    def __init__(self, context):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.rest = b""

    cdef int receive(self, const unsigned char* data, size_t size) except -1:
        """Take in encrypted bytes of the peer."""
        self.incoming.write(data[:size])
        return 0

    cdef bytes read(self):
        """Return decrypted bytes; None when more input is needed, empty at the peer's end."""
        try:
            return self.tls.read(READ_BYTES)
        except ssl.SSLWantReadError:
            return None

    cdef int write(self, const unsigned char* data, size_t size) except -1:
        """Encrypt bytes for the peer."""
        self.tls.write(data[:size])
        return 0

    cdef Py_ssize_t unsent(self) except -1:
        """Number of encrypted bytes in `rest`, from `rest_at` on, that the socket has not taken."""
        if self.rest_at == len(self.rest) and (self.rest or self.outgoing.pending):
            self.rest, self.rest_at = self.outgoing.read(), 0
        return len(self.rest) - self.rest_at

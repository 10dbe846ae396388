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

    cdef bint has_output(self) except -1:
        """Whether there are new encrypted bytes for the peer."""
        return self.outgoing.pending > 0

    cdef bytes output(self):
        """Return all encrypted bytes not sent yet; the caller sets `rest` to those that the socket did not take."""
        if self.outgoing.pending:
            self.rest += self.outgoing.read()
        return self.rest

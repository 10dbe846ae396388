# cython: language_level=3, boundscheck=False, wraparound=False
"""Input of a connection: a buffer whose growth is bounded by the process's limits."""

from libc.string cimport memcpy

from common.net._buffer cimport grow, held, move_to_front, release
from common.net._output cimport OutputSocket
from common.net._reactor cimport EPOLLOUT

cdef enum:
    SMALL_BYTES = 65536           # growth of a connection that the process's limit leaves out
    STRANGER_BYTES = 4096         # the same of one whose credential has not verified
    STRANGERS_SHARE = 4           # strangers may fill this part of the process's limit


cdef class InputSocket(OutputSocket):
    """A socket with input.

    Invariant: `reactor.in_bytes` is the sum of the sizes of all input buffers.
    """

    def __dealloc__(self):
        release(&self.inp)

    cpdef trust(self):
        """A credential has verified: accept frames up to frame_bytes_max, and idle times, from now on."""
        if not self.is_trusted:
            self.is_trusted = True
            if self.on_trust is not None:
                self.on_trust(self, True)

    def distrust(self):
        """A credential was refused: the client is a stranger again, and has the greeting deadline to show a valid one."""
        if self.is_trusted and not self.is_closed:
            self.is_trusted = False
            self.stranger_since = self.reactor.now
            if self.on_trust is not None:
                self.on_trust(self, False)

    cdef int keep(self, const unsigned char* data, size_t size) except -1:
        self.grow_in(max(self.in_need, held(&self.inp) + size), held(&self.inp) + size)
        if self.inp.cap - self.inp.end < size:      # grow_in() always makes room for `least`
            raise MemoryError("input buffer")
        memcpy(self.inp.data + self.inp.end, data, size)
        self.inp.end += size
        return 0

    cdef int grow_in(self, size_t wanted, size_t least) except -1:
        """Make room for `wanted` bytes of input; for `least`, with reading paused, above the limit of the process."""
        cdef size_t before = self.inp.cap
        cdef size_t size = held(&self.inp)
        move_to_front(&self.inp)
        if wanted <= before and before > size:
            return 0
        if not self.fits(wanted - before if wanted > before else 0):
            self.pause()
            wanted = least
        wanted = max(wanted, size + 1024)
        if wanted <= before:
            return 0
        if not grow(&self.inp, wanted):
            raise MemoryError()
        self.reactor.in_bytes += wanted - before
        return 0

    cdef bint fits(self, size_t more) except -1:
        """Whether the process has memory for this many bytes more of this connection's input."""
        if self.is_link:                  # whose peer would stall, and with it all clients
            return True
        if self.is_trusted:
            return more <= SMALL_BYTES or self.reactor.in_bytes + more <= <size_t>self.limits.process_bytes_max
        return more <= STRANGER_BYTES or self.reactor.in_bytes + more <= <size_t>self.limits.process_bytes_max // STRANGERS_SHARE

    cdef int pause(self) except -1:
        """Leave further input in the kernel."""
        if self.reading:
            self.reading = False
            self.reactor.interest(self, EPOLLOUT if self.writing else 0)
        return 0

    cdef int drained(self) except -1:
        """The input buffer is empty."""
        self.inp.start = self.inp.end = 0
        self.reactor.in_bytes -= self.inp.cap
        release(&self.inp)
        return 0

    cdef int release_input(self, bint is_in_use) except -1:
        """Forget the input of a closed socket. A buffer in use is freed with the object."""
        self.reactor.in_bytes -= self.inp.cap
        if not is_in_use:
            release(&self.inp)
        self.inp.cap = self.inp.start = self.inp.end = 0
        return 0

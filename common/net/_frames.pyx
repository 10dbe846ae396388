# cython: language_level=3, boundscheck=False, wraparound=False
"""Frames of a connection: detects the protocol, finds the end of a message, admits long frames."""

from libc.stdlib cimport free, malloc

from common.net._framing cimport MessageScan, scan_message
from common.net._input cimport InputSocket

from common.net.framing import FramingError, sniff
from common.net.refusal import REFUSALS, exception_for, head_size, too_long, unproved


cdef class FrameSocket(InputSocket):
    """A socket whose input is frames of one protocol. Subclasses override on_prefix() and frame_refused()."""

    def __dealloc__(self):
        free(self.scan)

    cdef bint on_prefix(self, const unsigned char* frame, Py_ssize_t size) except -1:
        """Judge the start of a frame above the limit before authentication: True when its credential verifies."""
        return False

    cdef bint sniff(self, bytes first) except -1:
        """Return whether the protocol is known now.

        Closes connections that are neither framed nor buffered strict binary.
        """
        try:
            kind = sniff(first)
        except FramingError as error:
            self.shut(str(error))
            return False
        if kind is None:
            return False
        self.protocol = kind
        return True

    cdef Py_ssize_t scan_on(self, const unsigned char* p, size_t size, size_t* need) except? -2:
        """Continue scan_message() where its last call for this message ended.

        Only an incomplete message keeps a scan.
        """
        cdef MessageScan fresh
        cdef MessageScan* scan = self.scan
        cdef Py_ssize_t message
        if scan == NULL:
            fresh.depth = 0
            scan = &fresh
        message = scan_message(p, size, scan, need)
        if message != 0:
            free(self.scan)
            self.scan = NULL
        elif self.scan == NULL:
            self.scan = <MessageScan*>malloc(sizeof(MessageScan))
            if self.scan == NULL:
                raise MemoryError()
            self.scan[0] = fresh
        return message

    cdef int admit(self, size_t total, const unsigned char* frame, size_t have) except -1:
        """Return 1 to continue, 0 to stop.

        It stops when the connection is closed, or when a long frame before authentication needs more bytes for its
        check.
        """
        cdef size_t head = 0 if self.protocol == PROTOCOL_BUFFERED else 4
        cdef size_t unverified_max
        if total <= head:
            self.shut("frame length out of range")
            return 0
        if total - head > self.frame_max:
            return self.refuse_frame(frame, have, too_long(total - head, self.frame_max))
        self.in_need = total
        if self.is_trusted:
            return 1
        unverified_max = self.limits.frame_bytes_untrusted_max
        if total - head <= unverified_max:
            return 1
        if have < unverified_max:
            self.in_need = head + unverified_max
            return 0
        if self.on_prefix(frame, unverified_max):
            self.trust()
            return 1
        return self.refuse_frame(frame, have, unproved(total - head, unverified_max))

    cdef int refuse_frame(self, const unsigned char* frame, size_t have, str sentence) except -1:
        """Answer a frame whose size is not allowed once its head is there; returns 0.

        Bounds: `have` bytes of the frame are there.
        """
        cdef size_t need = 0 if self.is_link else <size_t>head_size(frame[:min(have, <size_t>8)])
        if need == 0:
            self.shut(sentence)
        elif have < need:
            self.in_need = need + (0 if self.protocol == PROTOCOL_BUFFERED else 4)
        else:
            REFUSALS.note(self.peer, sentence)
            self.frame_refused(exception_for(frame[:need], sentence))
        return 0

    cdef int frame_refused(self, bytes answer) except -1:
        """Send the answer to a refused frame, and close."""
        return 0

"""Stub server: answers every call with prepared bytes and the call's sequence number.

The generator's cost and its maximum rate are measured against it, without the work of a real server.
"""

from libc.errno cimport EINTR, errno
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy
from posix.unistd cimport close

from bench._bytes cimport put, reserve
from bench._connection cimport PARTLY, WHOLE, Connection, Received, flush, receive, release, watch, watch_writes

cdef extern from "sys/epoll.h" nogil:
    int EPOLL_CLOEXEC
    unsigned int EPOLLOUT
    ctypedef union epoll_data_t:
        unsigned int u32
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms)

cdef enum:
    NAME_AT = 12
    SEQID_AT = 16
    EVENTS = 64


cdef class Stub:
    """Serves connected sockets until one of them is closed.

    Args:
        sockets: connected and non-blocking; the caller keeps them.
        send_answer, pull_answer: whole frames with their length header.
    """

    cdef list _sockets
    cdef Connection* connections
    cdef int count, epoll
    cdef bytes _send_answer, _pull_answer
    cdef const char* answers[2]
    cdef size_t sizes[2]

    def __cinit__(self, sockets: list, send_answer: bytes, pull_answer: bytes = b""):
        cdef int index
        self._sockets, self._send_answer, self._pull_answer = sockets, send_answer, pull_answer
        self.answers[0], self.sizes[0] = self._send_answer, len(send_answer)
        self.answers[1], self.sizes[1] = self._pull_answer, len(pull_answer)
        self.count, self.epoll = len(sockets), epoll_create1(EPOLL_CLOEXEC)
        self.connections = <Connection*>calloc(self.count + 1, sizeof(Connection))
        if self.connections == NULL:
            raise MemoryError
        for index in range(self.count):
            self.connections[index].fd = sockets[index].fileno()
            if watch(&self.connections[index], self.epoll, index) < 0:
                raise OSError(errno, "a connection cannot be watched")

    def __dealloc__(self):
        cdef int index
        if self.connections != NULL:
            for index in range(self.count):
                release(&self.connections[index])
        free(self.connections)
        if self.epoll >= 0:
            close(self.epoll)

    def serve(self) -> None:
        """Answer until a peer closes. Blocks without the GIL."""
        with nogil:
            self._serve()

    cdef void _serve(self) noexcept nogil:
        cdef epoll_event events[64]
        cdef int count, index
        while True:
            count = epoll_wait(self.epoll, events, EVENTS, -1)
            if count < 0 and errno != EINTR:
                return
            for index in range(count):
                if self._on_event(<int>events[index].data.u32, events[index].events) < 0:
                    return

    cdef int _on_event(self, int index, unsigned int events) noexcept nogil:
        cdef Connection* connection = &self.connections[index]
        cdef Received got
        if events & EPOLLOUT and connection.waits_to_write:
            return self._flush(index)
        got = receive(connection)
        if got == PARTLY:
            return 0
        if got != WHOLE or self._answer(connection) < 0:
            return -1
        return self._flush(index)

    cdef int _answer(self, Connection* connection) noexcept nogil:
        cdef int kind = memcmp(connection.frame.data + NAME_AT, b"pull", 4) == 0
        connection.out.size = connection.out_done = 0
        if reserve(&connection.out, self.sizes[kind]) < 0:
            return -1
        put(&connection.out, self.answers[kind], self.sizes[kind])
        memcpy(connection.out.data + SEQID_AT, connection.frame.data + SEQID_AT, 4)
        connection.frame.size = 0
        return 0

    cdef int _flush(self, int index) noexcept nogil:
        cdef int written = flush(&self.connections[index])
        if written < 0:
            return -1
        return watch_writes(&self.connections[index], self.epoll, index, written == 0)

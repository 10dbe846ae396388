"""Reading and writing of one connection without the GIL. Nothing here blocks; Python closes the socket."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free

from bench._bytes cimport peek_u32, reserve

cdef extern from "sys/socket.h" nogil:
    int MSG_NOSIGNAL, MSG_DONTWAIT
    Py_ssize_t send(int fd, const void* data, size_t size, int flags)
    Py_ssize_t recv(int fd, void* data, size_t size, int flags)

cdef extern from "sys/epoll.h" nogil:
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD
    unsigned int EPOLLIN, EPOLLOUT
    ctypedef union epoll_data_t:
        unsigned int u32
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)

cdef enum:
    FRAME_MAX = 16384000               # the server's limit; a larger length is a broken stream
    READ_SIZE = 16384                  # first read of an answer; the buffer then grows to the answer's length


cdef int _control(
    Connection* connection, int epoll, int operation, unsigned int events, unsigned int index
) noexcept nogil:
    cdef epoll_event event
    event.events = events
    event.data.u32 = index
    return epoll_ctl(epoll, operation, connection.fd, &event)


cdef int watch(Connection* connection, int epoll, int index) noexcept nogil:
    """Add the connection to the epoll set; its events carry `index`."""
    return _control(connection, epoll, EPOLL_CTL_ADD, EPOLLIN, <unsigned int>index)


cdef int flush(Connection* connection) noexcept nogil:
    """Write what the socket takes: 1: all is written, 0: the rest waits for room, -1: the peer is gone."""
    cdef Py_ssize_t written
    while connection.out_done < connection.out.size:
        written = send(
            connection.fd, connection.out.data + connection.out_done, connection.out.size - connection.out_done,
            MSG_NOSIGNAL | MSG_DONTWAIT,
        )
        if written < 0:
            if errno == EINTR:
                continue
            return 0 if errno == EAGAIN else -1
        connection.out_done += <size_t>written
    return 1


cdef int watch_writes(Connection* connection, int epoll, int index, bint wanted) noexcept nogil:
    """Watch for EPOLLOUT, or stop watching, unless that is the state already."""
    if connection.waits_to_write == wanted:
        return 0
    connection.waits_to_write = wanted
    return _control(connection, epoll, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT if wanted else EPOLLIN, <unsigned int>index)


cdef Received receive(Connection* connection) noexcept nogil:
    """Read once; WHOLE when `connection.frame` holds exactly one answer.

    Bytes after the answer are an error, since only one call is in flight: TOO_LARGE, a broken stream.
    """
    cdef Buffer* frame = &connection.frame
    cdef size_t wanted = READ_SIZE
    cdef Py_ssize_t got
    if frame.size >= 4 and 4 + <size_t>peek_u32(frame.data) > frame.size + READ_SIZE:
        wanted = 4 + <size_t>peek_u32(frame.data) - frame.size
    if reserve(frame, wanted) < 0:
        return NO_MEMORY
    got = recv(connection.fd, frame.data + frame.size, wanted, MSG_DONTWAIT)
    if got < 0:
        return PARTLY if errno == EAGAIN or errno == EINTR else CLOSED
    if got == 0:
        return CLOSED
    frame.size += <size_t>got
    if frame.size < 4:
        return PARTLY
    wanted = 4 + <size_t>peek_u32(frame.data)
    if wanted > FRAME_MAX + 4 or frame.size > wanted:
        return TOO_LARGE
    return WHOLE if frame.size == wanted else PARTLY


cdef void release(Connection* connection) noexcept nogil:
    """Free the buffers."""
    free(connection.out.data)
    free(connection.frame.data)
    free(connection.acks.data)

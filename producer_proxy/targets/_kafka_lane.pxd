# cython: language_level=3
from libc.stdint cimport INT64_MIN, int64_t, uint32_t

from engine.client._append_request cimport Waiter

cdef enum:
    KAFKA_OPEN = 0                    # it takes messages
    KAFKA_FULL = 1                    # too much is unanswered
    KAFKA_AWAY = 2                    # the rare path says why it takes none


cdef inline int64_t no_place() noexcept nogil:
    """Stands for the offset of a message that is stored where offsets are not told."""
    return INT64_MIN


cdef class ToldWaiter(Waiter):
    cdef dict told                    # sentences of refusals by index, in place of those of their codes; None: none
    cdef uint32_t told_count          # messages of the call


cdef class KafkaLane:
    # Invariant: arena[0..used) holds `count` messages in the form of PRODUCE, those of `waiters`, in their order.
    cdef object target
    cdef uint32_t patience_ms
    cdef str lost
    cdef dict numbers                 # of the topics in `arena`, by name
    cdef list waiters                 # the calls whose messages are in `arena`
    cdef unsigned char* arena
    cdef size_t used, room
    cdef uint32_t count
    cdef int state(self) except -1
    cdef int join(self, ToldWaiter waiter, uint32_t count) except -1
    cdef int add(self, bytes topic, const unsigned char* id16, const unsigned char* message, uint32_t size) except -1
    cdef int make_room(self, size_t more) except -1

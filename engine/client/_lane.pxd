# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from common.limits._queue_limit cimport QueueLimit
from common.net._connection cimport Connection
from common.net._reactor cimport TurnEnd
from engine.client._append_request cimport AppendItem, AppendRequest, Waiter
from engine.client._destination cimport Destination


cdef class Lane(TurnEnd):
    cdef readonly int number          # row of durability.LANES
    cdef readonly int durability      # number of the class that its appends ask for
    cdef public int group             # the broker group's number, by which destinations know it
    cdef public int share             # sixteenths of the movable messages that this lane takes
    cdef public bint refusing         # takes nothing at all
    cdef int turn                     # position within the sixteenths
    cdef double slowest_s             # slowest answer since the last check; negative: none
    cdef int in_flight_max
    cdef AppendRequest filling
    cdef list flying
    cdef list spare
    cdef uint64_t append_number
    cdef uint32_t request_id
    cdef readonly object link
    cdef public bint keeps            # keeps its messages when the link is lost, for the next master
    cdef readonly bint waits          # takes messages without a link: the next master is sought
    cdef bint is_due_again            # what flies has to be sent again
    cdef uint32_t resending           # appends in flight that were sent again
    cdef readonly uint64_t end_position  # of the log, as last told
    cdef double linked_at             # monotonic seconds
    cdef object on_busy               # called at the next message; or None
    cdef public object on_down
    cdef public object rescue         # called as (append, group) to move messages before the rest is refused; or None
    cdef public object on_unknown_id  # called with each topic id that the broker does not know
    cdef readonly uint64_t appends
    cdef readonly uint64_t messages
    cdef readonly uint64_t waiting    # messages without an answer yet
    cdef readonly QueueLimit limit
    cdef bint is_up(self)
    cdef bint admits(self)
    cdef uint32_t choose_queue(self, Destination destination, const unsigned char* key, Py_ssize_t key_size) except? 0
    cdef bint has_room(self, size_t bytes)
    cdef bint lets_in(self, uint64_t asked, int grade) noexcept
    cdef int add(self, Destination destination, uint32_t queue, const unsigned char* id16, const unsigned char* message,
                 uint32_t size, const unsigned char* token, bint bound, uint32_t index) except -1
    cdef int note_key(self, uint32_t at, uint32_t size) except -1
    cdef int move(self, AppendRequest source, const AppendItem* item, Destination destination, uint32_t topic_id, uint32_t queue,
                  Waiter waiter) except -1
    cdef int join(self, Waiter waiter) except -1
    cdef int enter(self, Waiter waiter) except -1
    cdef int send(self) except -1
    cdef int send_again(self) except -1
    cdef int answered(self, uint32_t request_id, int code, const unsigned char* payload, Py_ssize_t size) except -1
    cdef int lost(self) except -1
    cdef int give_up(self, AppendRequest append, int code) except -1


cdef class AppendLink(Connection):
    cdef Lane lane

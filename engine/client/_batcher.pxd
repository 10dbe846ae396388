# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from common.limits._meter cimport Meter
from common.limits._queue_limit cimport QueueLimit
from common.net._reactor cimport Connection, TurnEnd


cdef struct Cell:                     # of an append's table: where the last run of a queue stands
    uint64_t key                      # topic id, queue
    uint32_t run
    uint32_t stamp                    # the append's, or the cell is empty

cdef struct Item:                     # one message
    uint32_t next                     # in its run; 0 ends it (items count from 1)
    uint32_t waiter
    uint32_t index
    uint32_t size                     # of its record
    size_t at                         # of its record, in the arena

cdef struct Run:                      # consecutive messages of one queue: they become one batch
    uint32_t topic_id
    uint32_t queue
    uint32_t count
    uint32_t head
    uint32_t tail
    uint32_t id_window_ms             # not 0: its one message is to be checked against that window of ids
    size_t bytes


cdef class Destination:
    cdef readonly bytes name
    cdef readonly uint32_t topic_id
    cdef readonly uint32_t queues
    cdef readonly uint32_t body_bytes_max
    cdef readonly unsigned char durability       # 1 MEMORY, 2 FSYNC: the topic's default
    cdef public bint buffered         # the topic has a fallback buffer
    cdef public bint diverted         # and a backlog in it: messages need the slow path's look
    cdef readonly uint32_t id_window_ms          # how long clients' ids are checked for duplicates; 0: never
    cdef bint used                    # found since the hand of the table came by last
    cdef public Meter meter           # of the topic's rate limit; None: it has none
    cdef public unsigned char grade   # 0 high, 1 normal, 2 low
    cdef public bint is_special       # its messages need more than the hot path does
    cdef public uint32_t checked_at   # generation of the configuration that it was last found right in; its user's business
    cdef uint32_t sticky_append[2]
    cdef uint32_t sticky_queue[2]
    cdef uint32_t next_queue


cdef class Destinations:
    cdef dict by_name
    cdef Py_ssize_t count_max
    cdef Py_ssize_t hand              # where in the dict eviction goes on
    cdef Destination find(self, const unsigned char* name, Py_ssize_t size)
    cdef int make_room(self) except -1


cdef class Waiter:
    cdef uint32_t waiting             # messages that have no result yet
    cdef double deadline              # monotonic seconds
    cdef bint expired
    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1
    cdef int done(self) except -1
    cdef int expire(self) except -1


cdef class Append:
    cdef list waiters
    cdef Item* items
    cdef Run* runs
    cdef unsigned char* arena
    cdef double started_at            # when its first message came
    cdef uint32_t item_count, item_cap, run_count, run_cap
    cdef size_t arena_used, arena_cap, frame_bytes
    cdef uint32_t request_id
    cdef Cell* cells                  # open addressing; the number of cells is a power of two, at least twice that of runs
    cdef uint32_t cell_count, stamp
    cdef Cell* cell(self, uint32_t topic_id, uint32_t queue) noexcept
    cdef int make_cells(self, uint32_t count) except -1
    cdef int add_run(self, uint32_t topic_id, uint32_t queue, uint32_t id_window_ms) except -1
    cdef int clear(self) except -1
    cdef int answer_all(self, int code) except -1
    cdef int answer(self, const unsigned char* results, Py_ssize_t size) except -1


cdef class Lane(TurnEnd):
    cdef int number                   # 0 MEMORY, 1 FSYNC
    cdef int in_flight_max
    cdef Append filling
    cdef list flying
    cdef list spare
    cdef uint64_t append_number
    cdef uint32_t request_id
    cdef readonly object link
    cdef public object on_down
    cdef readonly uint64_t appends
    cdef readonly uint64_t messages
    cdef readonly uint64_t waiting    # messages without an answer yet
    cdef readonly QueueLimit limit
    cdef bint is_up(self)
    cdef uint32_t choose_queue(self, Destination destination, const unsigned char* key, Py_ssize_t key_size) except? 0
    cdef bint has_room(self, size_t bytes)
    cdef int add(self, Destination destination, uint32_t queue, const unsigned char* id16, const unsigned char* message,
                 uint32_t size, Waiter waiter, uint32_t index) except -1
    cdef int join(self, Waiter waiter) except -1
    cdef int send(self) except -1
    cdef int answered(self, uint32_t request_id, int code, const unsigned char* payload, Py_ssize_t size) except -1
    cdef int lost(self) except -1


cdef class AppendLink(Connection):
    cdef Lane lane

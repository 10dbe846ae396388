# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from common.limits._queue_limit cimport QueueLimit
from common.net._connection cimport Connection
from common.net._reactor cimport TurnEnd
from engine.client._destination cimport Destination


cdef struct Cell:                     # of an append's table: where the last run of a queue stands
    uint64_t key                      # topic id, queue
    uint32_t run
    uint32_t stamp                    # the append's, or the cell is empty

cdef enum:
    MOVED = 0xFFFFFFFF                # in place of an item's waiter: another broker has been given the message

cdef enum:
    RECORD_HAS_ID = 1                 # flags of a record
    RECORD_HAS_TRAILER = 2
    REPLY_TOKEN_SIZE = 40             # the trailer of a request

cdef struct Item:                     # one message
    uint32_t next                     # in its run; 0 ends it (items count from 1)
    uint32_t waiter
    uint32_t index
    uint32_t bound                    # 1: to its queue, by its key
    uint32_t size                     # of its record
    size_t at                         # of its record, in the arena

cdef struct Run:                      # consecutive messages of one queue: they become one batch
    uint32_t topic_id
    uint32_t queue
    uint32_t count
    uint32_t head
    uint32_t tail
    uint32_t id_window_ms             # not 0: its one message is to be checked against that window of ids
    bint alone                        # it holds one message and no other will join
    uint32_t destination              # its number among the append's destinations; 0 where there is one broker only
    size_t bytes


cdef class Waiter:
    cdef uint32_t waiting             # appends that owe results
    cdef double deadline              # monotonic seconds
    cdef bint expired
    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1
    cdef int done(self) except -1
    cdef int expire(self) except -1


cdef class Append:
    cdef list waiters                 # None: all its messages were moved
    cdef list destinations            # of the runs whose messages could go elsewhere
    cdef double sent_at               # monotonic seconds
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
    cdef int add_run(self, uint32_t topic_id, uint32_t queue, uint32_t id_window_ms, bint alone, Destination destination) except -1
    cdef int clear(self) except -1
    cdef int forget_moved(self) except -1
    cdef int answer_all(self, int code) except -1
    cdef int answer(self, const unsigned char* results, Py_ssize_t size) except -1


cdef class Lane(TurnEnd):
    cdef readonly int number          # 0 MEMORY, 1 FSYNC
    cdef public int group             # the broker group's number, by which destinations know it
    cdef public int share             # sixteenths of what could go elsewhere as well that are to come here
    cdef public bint refusing         # takes nothing at all
    cdef int turn                     # of the sixteenths
    cdef double slowest_s             # answer since the last look; negative: none
    cdef int in_flight_max
    cdef Append filling
    cdef list flying
    cdef list spare
    cdef uint64_t append_number
    cdef uint32_t request_id
    cdef readonly object link
    cdef public object on_down
    cdef public object rescue         # asked as (append, group) to take what may go elsewhere, before the rest is refused; None: nobody
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
    cdef int move(self, Append source, const Item* item, Destination destination, uint32_t queue, Waiter waiter) except -1
    cdef Item* place(self, Destination destination, uint32_t queue, uint32_t size, uint32_t id_window_ms, bint alone) except NULL
    cdef int join(self, Waiter waiter) except -1
    cdef int enter(self, Waiter waiter) except -1
    cdef int send(self) except -1
    cdef int answered(self, uint32_t request_id, int code, const unsigned char* payload, Py_ssize_t size) except -1
    cdef int lost(self) except -1
    cdef int give_up(self, Append append, int code) except -1


cdef class AppendLink(Connection):
    cdef Lane lane

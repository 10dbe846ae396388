# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.client._destination cimport Destination


cdef struct Cell:                     # slot of an append's table: the last run of one queue
    uint64_t key                      # topic id, queue
    uint32_t run
    uint32_t stamp                    # the append's, or the cell is empty

cdef enum:
    MOVED = 0xFFFFFFFF                # stands for a message's waiter once the message was moved to another append
    NO_KEY = 0xFFFFFFFF               # stands for the size of a key: the message has none, or it was not noted

cdef struct AppendItem:               # one message
    uint32_t next                     # next item of its run; 0 ends the run (items count from 1)
    uint32_t waiter
    uint32_t index
    uint32_t bound                    # 1: tied to its queue by its key
    uint32_t size                     # size of its record
    uint32_t key_at                   # address of its key in its message, and size of the key; for taps only
    uint32_t key_size
    size_t at                         # address of its record in the arena

cdef struct AppendRun:                # consecutive messages of one queue: they become one batch
    uint32_t topic_id
    uint32_t queue
    uint32_t count
    uint32_t head
    uint32_t tail
    uint32_t id_window_ms             # not 0: its one message is checked against an id window of this length
    bint left_out                     # of the frame, as no call waits for it
    bint alone                        # it holds one message and no other will join
    uint32_t destination              # its number among the append's destinations; 0: not needed
    size_t bytes
    void* tap                         # its destination's AppendTap, kept by `taps`; that of None: it has none
    int code                          # outcome, from the answer on: that of its first message
    uint32_t told_queue
    int64_t told_offset


cdef class Waiter:
    cdef uint32_t waiting             # appends that have not reported their results yet
    cdef double deadline              # monotonic seconds
    cdef bint expired
    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1
    cdef int done(self) except -1
    cdef int expire(self) except -1


cdef class AppendTap:
    cdef object sending(self, AppendRequest append)
    cdef int answered(self, AppendRequest append, object state) except -1


cdef class AppendRequest:
    # Invariants, on which every loop over the arrays rests:
    # 1. items[0..item_count) and runs[0..run_count) are filled, with item_count <= item_cap and run_count <= run_cap.
    # 2. head, tail and next are 0 or number an item from 1 to item_count; following next from head reaches tail and
    #    then 0.
    # 3. A record lies in arena[at..at + size), with at + size <= arena_used <= arena_cap.
    # 4. waiter is MOVED or an index of waiters; a run's destination is 0 or numbers one of destinations from 1.
    # 5. frame_bytes is at least the size of the encoded frame: its head, and each run with its header, its records and
    #    up to 8 bytes of padding.
    cdef list waiters                 # None: all its messages were moved
    cdef list destinations            # of the runs whose messages could go elsewhere, or have a tap
    cdef list taps                    # of its runs, each once
    cdef list tap_states              # of each tap, once it is sent; else empty
    cdef double sent_at               # monotonic seconds
    cdef AppendItem* items
    cdef AppendRun* runs
    cdef unsigned char* arena
    cdef double started_at            # when its first message came
    cdef uint32_t item_count, item_cap, run_count, run_cap
    cdef size_t arena_used, arena_cap, frame_bytes
    cdef uint32_t request_id
    cdef uint64_t position            # of the log: nothing of this append can be stored below it
    cdef Cell* cells                  # open addressing; their number is a power of two, at least twice that of runs
    cdef uint32_t cell_count, stamp
    cdef Cell* cell(self, uint32_t topic_id, uint32_t queue) noexcept
    cdef int make_cells(self, uint32_t count) except -1
    cdef int add_run(self, uint32_t topic_id, uint32_t queue, uint32_t id_window_ms, bint alone, Destination destination) except -1
    cdef AppendItem* place(self, uint32_t topic_id, Destination destination, uint32_t queue, uint32_t size, uint32_t id_window_ms,
                           bint alone) except NULL
    cdef unsigned char* encode(self, unsigned char* start, uint32_t request_id, int durability) noexcept
    cdef unsigned char* encode_again(self, unsigned char* start, uint32_t request_id, int durability) noexcept
    cdef bint has_expired(self)
    cdef bint drop_expired(self) except -1
    cdef bint leave_out_expired_runs(self) except -1
    cdef int tell_taps(self) except -1
    cdef int clear(self) except -1
    cdef int forget_moved(self) except -1
    cdef int answer_all(self, int code) except -1
    cdef int answer(self, const unsigned char* results, Py_ssize_t size, object on_unknown_id) except -1

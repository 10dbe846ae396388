# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.client._append_request cimport NO_KEY, AppendItem, AppendRequest
from engine.client._destination cimport Destination

from producer_proxy.journal._area_map cimport AreaMap


cdef enum:
    RECORD_SIZE_SIZE = 4              # of an append's record, before its flags


cdef struct TappedEntry:              # one message
    uint32_t at                       # address of its block in `blocks`
    uint32_t record_at                # address in `blocks` of its flags, assigned id and message
    uint32_t record_size

cdef struct TappedRun:                # consecutive entries of one queue, with one outcome
    uint32_t topic                    # its number in `topics`
    uint32_t count
    int code
    uint32_t queue
    int64_t offset                    # of its first message


cdef class TappedTopics:
    cdef dict known                   # Destination -> DualDestination, of the last ones
    cdef object dual(self, Destination destination)


cdef class TappedBatch:
    # Invariants: entries[0..count) and runs[0..run_count) are filled, the counts of the runs add up to `count`; an
    # entry's block, which contains its record, lies within blocks[0..used).
    cdef public object base           # position of the first block in a segment of the journal; None: they are in none
    cdef public bint is_taken         # the journal has the intents
    cdef readonly bint is_cut         # no append joins any more
    cdef readonly uint32_t count
    cdef readonly list topics         # DualDestination of each topic
    cdef readonly int durability
    cdef readonly bint is_all_ok      # the primary has stored all that it has answered
    cdef object tap                   # the DualTap
    cdef TappedTopics known
    cdef dict numbers                 # Destination -> its place in `topics`
    cdef list key_counts              # the result of counts_of_keys; None: it has not been asked for
    cdef uint64_t stamp               # of this batch alone, for its destinations
    cdef uint32_t unanswered          # appends
    cdef uint32_t run_count, entry_cap, run_cap
    cdef size_t used, cap
    cdef TappedEntry* entries
    cdef TappedRun* runs
    cdef unsigned char* blocks
    cdef AreaMap map                  # None: the batch has no area
    cdef uint32_t area
    cdef uint64_t start               # position of the area's first byte
    cdef int add(self, AppendRequest append, uint64_t position, int64_t now_ms) except -1
    cdef bint has_room(self, size_t size, uint32_t count)
    cdef int make_room(self, size_t size, uint32_t count, uint32_t runs) except -1
    cdef uint32_t number_of(self, Destination destination) except? 0


cdef TappedBatch made_batch(object tap, TappedTopics known, int durability)


cdef inline uint32_t key_size(const AppendItem* item) noexcept:
    return 0 if item.key_size == NO_KEY else item.key_size

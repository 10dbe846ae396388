# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.client._append_request cimport AppendRequest, AppendTap
from engine.client._destination cimport Destination


cdef struct TappedEntry:              # one message
    uint32_t at                       # address of its block in `data`
    uint32_t record_at                # address in `data` of its flags, assigned id and message
    uint32_t record_size

cdef struct TappedRun:                # consecutive entries of one queue, with one outcome
    uint32_t topic                    # its number in `topics`
    uint32_t count
    int code
    uint32_t queue
    int64_t offset                    # of its first message


cdef class DualTap


cdef class TappedBatch:
    # Invariants: entries[0..count) and runs[0..run_count) are filled, the counts of the runs add up to `count`; an
    # entry's block, which contains its record, lies within `data`.
    cdef readonly uint64_t base       # position of `data` in the journal
    cdef readonly bytes data          # the intents' blocks; None: the journal did not take them
    cdef readonly uint32_t count
    cdef readonly list topics         # DualDestination of each topic
    cdef readonly int durability
    cdef readonly bint is_all_ok      # the primary has stored all of them
    cdef uint32_t run_count
    cdef TappedEntry* entries
    cdef TappedRun* runs
    cdef int gather(self, AppendRequest append, DualTap tap) except -1
    cdef bytes encode(self, AppendRequest append, void* tap, uint64_t position, int64_t now_ms)
    cdef int settle(self, AppendRequest append, void* tap) except -1


cdef class DualTap(AppendTap):
    cdef public bint is_closed        # a topic of the pair is refused: calls take the rare path, which says so
    cdef readonly set open            # batches that the primary has not answered
    cdef object write, on_answered, on_fault
    cdef dict known                   # Destination -> DualDestination, of the last ones
    cdef AppendRequest append         # the one that is being told; None: none is
    cdef TappedBatch batch
    cdef object dual(self, Destination destination)

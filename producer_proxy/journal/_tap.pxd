# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t

from engine.client._append_request cimport AppendRequest, AppendTap

from producer_proxy.journal._tapped_batch cimport TappedBatch, TappedTopics


cdef class TappedAppend:              # one append's part of a batch
    cdef TappedBatch batch
    cdef uint32_t first_run


cdef class DualTap(AppendTap):
    cdef public bint is_closed        # a topic of the pair is refused: calls take the rare path, which says so
    cdef object journal, unanswered
    cdef TappedTopics topics
    cdef AppendRequest append         # the one that is being written to a segment; None: none is
    cdef TappedBatch batch            # the one that the next append joins; None: there is none
    cdef TappedBatch writing          # its batch
    cdef int64_t told_ms, told_at_ns  # the journal's time when it was last asked, and the monotonic time then
    cdef int64_t now_ms(self) except? -1
    cdef TappedBatch batch_for(self, size_t size, uint32_t count, int durability)
    cdef TappedBatch written(self, AppendRequest append, size_t size, uint32_t count, uint32_t runs, int durability)

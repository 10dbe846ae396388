# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t

from producer_proxy.hot._answers cimport Result
from producer_proxy.targets._kafka_lane cimport ToldWaiter


cdef class CallResults(ToldWaiter):
    # Invariants: results[0..count) are filled by set_id(), count <= results_cap; a result's id lies in
    # ids[0..ids_used), ids_used <= ids_cap.
    cdef int32_t seqid
    cdef uint32_t count               # messages
    cdef uint32_t results_cap
    cdef Result* results
    cdef unsigned char* ids           # as shown, one after the other
    cdef size_t ids_used, ids_cap
    cdef double started_at            # monotonic seconds
    cdef int32_t retry_after_ms
    cdef object sends                 # TopicSends of its topic; with several topics, a list of those that are counted; or None
    cdef uint32_t* places             # with a list: each message's place in it, from 1; 0: its topic is not counted
    cdef uint32_t places_cap
    cdef bytes topic                  # of all its messages; None: they have several
    cdef int start(self, int32_t seqid, uint32_t count, int32_t retry_after_ms, double now, double timeout_s) except -1
    cdef int set_id(self, uint32_t index, const unsigned char* id, uint32_t size, bint assigned) except -1
    cdef bint failed(self) noexcept
    cdef int make_places(self, uint32_t count) except -1
    cdef int note(self) except -1
    cdef int note_each(self, list sends) except -1
    cdef list outcomes(self)

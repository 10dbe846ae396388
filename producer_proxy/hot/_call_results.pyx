# cython: language_level=3, boundscheck=False, wraparound=False
"""Results of one call of the hot path, until it is answered: a code, a position and an id per message."""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from engine.link.constants cimport CODE_CLAIMED, CODE_DISK_FULL, CODE_DUPLICATE, CODE_OVERLOADED, CODE_TIMEOUT, CODE_UNAVAILABLE
from producer_proxy.hot._answers cimport Result
from producer_proxy.send._sends_window cimport TopicSends
from producer_proxy.targets._kafka_lane cimport ToldWaiter

cdef enum:
    IDS_MIN = 64

cdef const char* HEX = b"0123456789abcdef"


cdef class CallResults(ToldWaiter):
    """The results of an open call; see the invariants in _call_results.pxd."""

    def __dealloc__(self):
        free(self.results)
        free(self.ids)
        free(self.places)

    cdef int start(self, int32_t seqid, uint32_t count, int32_t retry_after_ms, double now, double timeout_s) except -1:
        """Begin a call of `count` messages. Its answer is due after `timeout_s`."""
        if count > self.results_cap:
            self.results = <Result*>grow(self.results, count * sizeof(Result))
            self.results_cap = count
        if self.ids == NULL:              # also for a call without ids: not even 0 bytes may be copied to NULL
            self.ids = <unsigned char*>grow(NULL, IDS_MIN)
            self.ids_cap = IDS_MIN
        self.seqid, self.count, self.waiting, self.retry_after_ms = seqid, count, 0, retry_after_ms
        self.ids_used, self.told = 0, None
        self.started_at, self.deadline = now, now + timeout_s
        return 0

    cdef int set_id(self, uint32_t index, const unsigned char* id, uint32_t size, bint assigned) except -1:
        """Set the shown id of message `index`: the client's bytes, or an assigned id in hex.

        Until the answer its code is TIMEOUT.
        """
        cdef uint32_t shown = size * 2 if assigned else size
        cdef unsigned char* out
        cdef uint32_t i
        if self.ids_used + shown > self.ids_cap:
            self.ids = <unsigned char*>grow(self.ids, 2 * (self.ids_used + shown))
            self.ids_cap = 2 * (self.ids_used + shown)
        out = self.ids + self.ids_used
        if assigned:
            for i in range(size):
                out[2 * i] = HEX[id[i] >> 4]
                out[2 * i + 1] = HEX[id[i] & 15]
        else:
            memcpy(out, id, size)
        self.results[index].id_at, self.results[index].id_size = <uint32_t>self.ids_used, shown
        self.results[index].code = CODE_TIMEOUT
        self.ids_used += shown
        return 0

    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1:
        self.results[index].code, self.results[index].queue, self.results[index].offset = code, queue, offset
        return 0

    cdef bint failed(self) noexcept:
        """Whether a message has one of buffer.fallback.DIVERTED_CODES, or its id is claimed for another queue."""
        cdef uint32_t i
        for i in range(self.count):
            if self.results[i].code in (CODE_OVERLOADED, CODE_UNAVAILABLE, CODE_DISK_FULL, CODE_TIMEOUT, CODE_CLAIMED):
                return True
        return False

    cdef int make_places(self, uint32_t count) except -1:
        """Have room for the places of so many messages."""
        if count > self.places_cap:
            self.places = <uint32_t*>grow(self.places, count * sizeof(uint32_t))
            self.places_cap = count
        return 0

    cdef int note(self) except -1:
        """Count the results of an answered call for their topics."""
        cdef uint32_t i, stored = 0, failed = 0
        if self.sends is None:
            return 0
        if type(self.sends) is list:
            return self.note_each(<list>self.sends)
        for i in range(self.count):
            stored += self.results[i].code <= CODE_DUPLICATE
            failed += is_failure(self.results[i].code)
        (<TopicSends?>self.sends).add(stored, failed)
        return 0

    cdef int note_each(self, list sends) except -1:
        """As `note`, for several topics."""
        cdef uint32_t i, n = <uint32_t>len(sends) + 1
        cdef uint32_t* counts = <uint32_t*>calloc(2 * n, sizeof(uint32_t))
        if counts == NULL:
            raise MemoryError()
        try:
            for i in range(self.count):
                counts[2 * self.places[i]] += self.results[i].code <= CODE_DUPLICATE
                counts[2 * self.places[i] + 1] += is_failure(self.results[i].code)
            for i in range(1, n):
                (<TopicSends?>sends[i - 1]).add(counts[2 * i], counts[2 * i + 1])
        finally:
            free(counts)
        return 0

    cdef list outcomes(self):
        """(code, queue, offset, id as shown) of each message, for the rare path."""
        cdef const Result* r
        cdef uint32_t i
        found = []
        for i in range(self.count):
            r = &self.results[i]
            found.append((r.code, r.queue, r.offset, self.ids[r.id_at:r.id_at + r.id_size]))
        return found


cdef inline bint is_failure(int32_t code) noexcept:
    """Whether a code is one of send.topic_sends.FAILURES."""
    return code == CODE_UNAVAILABLE or code == CODE_TIMEOUT or code == CODE_OVERLOADED or code == CODE_DISK_FULL


cdef void* grow(void* old, size_t size) except NULL:
    cdef void* grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError()
    return grown

# cython: language_level=3, boundscheck=False, wraparound=False
"""State of the hot path that all connections of a producer proxy share: lanes, destinations, credentials, and the
current call.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from common.wire cimport _walk
from engine.client._destination cimport Destination, Destinations
from engine.client._lanes cimport Lanes
from engine.link.constants cimport DURABILITY_MAX
from producer_proxy.hot._admission cimport HotAdmission
from producer_proxy.hot._admitted cimport AdmittedCredential
from producer_proxy.hot._bytes cimport put_be32, put_be64
from producer_proxy.hot._request_calls cimport RequestCalls

cdef enum:
    CREDENTIALS_MAX = 10000           # a full table is emptied; each credential then takes the rare path once


cdef class Front:
    """State shared by all connections of a producer proxy.

    Args:
        lanes_by_class: the Lanes that serve each durability class, by its number; None at 0.
        destinations: of the engine's topics in use; filled by the rare path.
        is_right: asked about a destination at its first use after a change of the configuration. generation: of the
            configuration.
        slow: called as (connection, frame bytes) in a loop callback for every call that is not common.
        sentences: contract code -> its sentence, as bytes.
        process_bytes: 6 random bytes, the middle of every id assigned here; see common/ids.py for the layout.
        rescue: called as (connection, frame bytes, [(code, queue, offset, id)]) for a call to buffered topics that the
            engine failed.
        requests: GroupedRequests, the open requests.
    """

    def __init__(self, tuple lanes_by_class, Destinations destinations, is_right, generation, slow, dict sentences,
                 bytes process_bytes, int timeout_ms, int retry_after_ms, rescue, requests):
        cdef int number
        if len(lanes_by_class) != DURABILITY_MAX + 1:
            raise ValueError(f"lanes_by_class: {len(lanes_by_class)} entries: use {DURABILITY_MAX + 1}, one per class and None at 0")
        self.lanes = lanes_by_class
        for number in range(1, DURABILITY_MAX + 1):
            self.lanes_by_class[number] = <void*><Lanes?>lanes_by_class[number]
        self.slow, self.sentences, self.rescue = slow, sentences, rescue
        self.destinations, self.is_right, self.generation = destinations, is_right, generation & 0xFFFFFFFF
        self.credentials, self.codes, self.admission = {}, {}, HotAdmission()
        self.request_calls = RequestCalls(requests, self.codes, sentences, retry_after_ms)
        memcpy(self.process_bytes, <const unsigned char*>process_bytes, 6)
        self.timeout_s = timeout_ms / 1000.0
        self.retry_after_ms = retry_after_ms
        self.messages = <_walk.Message*>malloc(MESSAGES_MAX * sizeof(_walk.Message))
        self.chosen = <void**>malloc(MESSAGES_MAX * sizeof(void*))
        if self.messages == NULL or self.chosen == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.messages)
        free(self.chosen)

    def admit(self, bytes credential, str application, double expires_at, patterns, meter, origin, bytes reply_key):
        """Admit credential bytes that the rare path has verified.

        The application may send to topics that match `patterns`, within the meter's limit, until `expires_at` in
        monotonic seconds. `reply_key` belongs to its reply tokens.
        """
        if credential in self.credentials:
            return
        if len(self.credentials) >= CREDENTIALS_MAX:
            self.credentials.clear()
        self.credentials[credential] = AdmittedCredential(credential, application, expires_at, patterns, meter, origin, reply_key)

    def follow(self, generation, own, bint takes_replies):
        """Apply a change of the configuration.

        Every credential is verified again, and every destination is checked against its definition.

        Args:
            own: the Meter of the proxy's own limit; None: it has none. takes_replies: operators have not switched
                replies off.
        """
        cdef AdmittedCredential admitted
        self.generation = generation & 0xFFFFFFFF
        self.admission.own, self.request_calls.takes_replies = own, takes_replies
        for admitted in self.credentials.values():
            admitted.expires_at = 0       # connections keep a reference to their last credential
        self.credentials.clear()

    def divert(self, bint is_suspected):
        """Send calls to buffered topics on the rare path while the engine is suspected."""
        self.diverting = is_suspected

    def stop(self):
        """Pass every call to the rare path, which answers SHUTTING_DOWN."""
        self.closing = True

    def resume(self):
        """Take calls again after stop()."""
        self.closing = False

    def latency_buckets(self):
        """Counts of hot calls by time from the call's bytes to its answer: bucket i is up to 62.5 µs * 2**i."""
        return [self.latency[i] for i in range(LATENCY_BUCKETS)]

    cdef int assign(self, unsigned char* id16, uint64_t now_ms) except -1:
        self.id_counter += 1
        put_be64(id16, now_ms << 16)
        memcpy(id16 + 6, self.process_bytes, 6)
        put_be32(id16 + 12, self.id_counter)
        return 0

    cdef bint check(self, Destination destination) except -1:
        """Check a destination against its definition, once per change of the configuration."""
        if not self.is_right(destination):
            return False
        destination.checked_at = self.generation
        return True

    cdef int observe(self, double seconds) except -1:
        cdef int bucket = 0
        cdef double bound = 62.5e-6
        while seconds > bound and bucket < LATENCY_BUCKETS - 1:
            bound *= 2
            bucket += 1
        self.latency[bucket] += 1
        self.latency_sum_s += seconds
        return 0

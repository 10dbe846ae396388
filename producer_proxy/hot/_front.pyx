# cython: language_level=3, boundscheck=False, wraparound=False
"""State of the hot path that all connections of a producer proxy share: lanes, destinations, credentials, and the
current call.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from common.wire cimport _walk
from engine.client._destination cimport Destination, Destinations
from engine.client._lanes cimport Lanes
from engine.link.constants cimport CODE_OK, DURABILITY_MAX
from producer_proxy.hot._admission cimport HotAdmission
from producer_proxy.hot._admitted cimport AdmittedCredential
from producer_proxy.hot._bytes cimport put_be32, put_be64
from producer_proxy.hot._call_results cimport CallResults
from producer_proxy.hot._request_calls cimport RequestCalls

cdef enum:
    CREDENTIALS_MAX = 10000           # a full table is emptied; each credential then takes the rare path once

cdef double SAMPLE_GAP_S = 0.001      # of calls whose time is noted at their topic: each takes some 0.5 µs


cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t haystack_size, const void* needle, size_t needle_size)

cdef enum:
    NAME_SIZE = 19                    # of a property `traceparent` with the length of its value, 55
    FLAGS_AT = 54                     # place of the last digit of its flags in the value
cdef const unsigned char* NAME = b"\0\0\0\x0btraceparent\0\0\0\x37"


cdef inline bint may_be_sampled(const unsigned char* frame, const _walk.Message* m) noexcept nogil:
    """Whether a message seems to have a sampled `traceparent`. Other properties may look so: the rare path reads them.

    The body is left out where it is a field of its own. Reads frame[m.start..m.start + m.size).
    """
    cdef size_t body_end = m.body_start + m.body_size if m.flags & _walk.HAS_BODY else m.start
    return (m.flags & _walk.HAS_BODY and names_sampled(frame + m.start, m.body_start - m.start)) or \
        names_sampled(frame + body_end, m.start + m.size - body_end)


cdef inline bint names_sampled(const unsigned char* p, size_t size) noexcept nogil:
    cdef const unsigned char* found = <const unsigned char*>memmem(p, size, NAME, NAME_SIZE)
    if found == NULL or <size_t>(found - p) + NAME_SIZE + FLAGS_AT >= size:
        return False
    # Of hexadecimal digits the odd ones have an odd code, but for a to f, whose codes are odd for even values.
    return (found[NAME_SIZE + FLAGS_AT] & 1) != (found[NAME_SIZE + FLAGS_AT] > 0x60)


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
        self.credentials, self.codes, self.topic_sends, self.admission = {}, {}, {}, HotAdmission()
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

    def trace(self, chosen_slow, double ratio):
        """Pass calls with a message that may have a sampled `traceparent` to the rare path, which traces it.

        Args:
            chosen_slow: as `slow`, for one of 1/ratio calls whatever they carry.
        """
        self.chosen_slow, self.is_tracing = chosen_slow, True
        self.trace_step = self.trace_left = <uint32_t>min(1 / ratio + 0.5, 4e9) if ratio > 0 else 0

    cdef CallDecision traced(self, int decision, const unsigned char* frame) noexcept:
        """examine()'s decision about the current call, or a path on which the call is traced.

        Bounds: `start`, `size`, `body_start` and `body_size` of a walked message without a fault are slices of the frame.
        """
        cdef uint32_t i
        cdef _walk.Message* m
        if not self.is_tracing or decision == GO_SLOW or decision == REFUSE_ALL or decision == PASS_REPLY:
            return <CallDecision>decision
        if self.trace_step:
            self.trace_left -= 1
            if self.trace_left == 0:
                self.trace_left = self.trace_step
                return TRACE
        for i in range(self.call.message_count):
            m = &self.messages[i]
            if m.flags & _walk.HAS_PROPERTIES and may_be_sampled(frame, m):
                return GO_SLOW
        return <CallDecision>decision

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

    cdef int tell_topics(self, CallResults call) except -1:
        """Note the topic of the current call, if it has one, and who counts the outcomes of its messages."""
        call.topic = None if self.is_mixed else (<Destination>self.chosen[0]).name
        call.sends = None
        if self.topic_sends and self.is_mixed:
            call.sends = self.counted_topics(call)
        elif self.topic_sends:
            call.sends = self.topic_sends.get(call.topic)
        return 0

    cdef list counted_topics(self, CallResults call):
        """The TopicSends of the current call's messages, each once, and their places; one look-up per topic."""
        cdef uint32_t i
        cdef Destination destination
        cdef list found = []
        self.counted_call += 1
        call.make_places(self.call.message_count)
        for i in range(self.call.message_count):
            destination = <Destination>self.chosen[i]
            if destination.counted_call != self.counted_call:
                destination.counted_call, destination.counted_place = self.counted_call, 0
                sends = self.topic_sends.get(destination.name)
                if sends is not None:
                    found.append(sends)
                    destination.counted_place = <uint32_t>len(found)
            call.places[i] = destination.counted_place
        return found or None

    cdef int observe(self, CallResults call, double now) except -1:
        """Note the time of a call that is answered; now and then at its topic, too, if it was taken."""
        cdef int bucket = 0
        cdef double bound = 62.5e-6, seconds = now - call.started_at
        while seconds > bound and bucket < LATENCY_BUCKETS - 1:
            bound *= 2
            bucket += 1
        self.latency[bucket] += 1
        self.latency_sum_s += seconds
        if now - self.sampled_at >= SAMPLE_GAP_S and self.figures is not None and call.topic is not None and call.results[0].code == CODE_OK:
            self.sampled_at = now
            self.figures.answered(call.topic, seconds)
        return 0

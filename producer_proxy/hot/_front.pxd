# cython: language_level=3
from libc.stdint cimport int32_t, uint32_t, uint64_t

from common.wire cimport _walk
from engine.client._destination cimport Destination, Destinations
from engine.link.constants cimport DURABILITY_MAX
from producer_proxy.hot._admission cimport HotAdmission
from producer_proxy.hot._call_results cimport CallResults
from producer_proxy.hot._request_calls cimport RequestCalls

cdef enum:
    MESSAGES_MAX = 1000
    LATENCY_BUCKETS = 16              # powers of two from 62.5 µs

cdef enum CallDecision:               # result of examine() for the whole current call
    GO_SLOW = 0                       # the rare path takes it
    TAKE = 1                          # append its messages
    ASK = 2                           # append its request
    PASS_REPLY = 3                    # send its reply to the asker's proxy
    GIVE = 5                          # give its messages to a Kafka cluster
    REFUSE_ALL = 4                    # answer every message with front.refusal
    TRACE = 6                         # the rare path takes it, and traces it whatever it carries


cdef class Front:
    cdef tuple lanes
    cdef void* lanes_by_class[DURABILITY_MAX + 1]       # Lanes, borrowed from `lanes`
    cdef Destinations destinations
    cdef object is_right
    cdef uint32_t generation
    cdef object slow
    cdef HotAdmission admission
    cdef readonly RequestCalls request_calls
    cdef dict sentences
    cdef dict credentials             # AdmittedCredential by the credential's bytes
    cdef unsigned char process_bytes[6]
    cdef uint32_t id_counter
    cdef double timeout_s
    cdef int32_t retry_after_ms
    # The current call: filled by examine(), used by the method that examine() chose, void with the next call.
    # Bounds: entries 0 to call.message_count - 1 of the arrays are filled; the walker gives at most MESSAGES_MAX.
    # `chosen` borrows from `destinations`: nothing is evicted while the call is handled.
    cdef _walk.SendCall call
    cdef _walk.Message* messages
    cdef void** chosen                # the Destination of each message
    cdef uint32_t queues[MESSAGES_MAX]          # the queue of each message, with several broker groups
    cdef void* call_lanes             # Lanes for the whole call, borrowed from `lanes`
    cdef size_t call_bytes            # of its messages
    cdef int refusal                  # the code of REFUSE_ALL
    cdef bint closing
    cdef bint diverting               # the engine is suspected: calls to buffered topics take the rare path
    cdef object rescue
    cdef readonly uint64_t calls, hot_calls, hot_messages, bytes_in
    cdef uint64_t latency[LATENCY_BUCKETS]
    cdef readonly double latency_sum_s
    cdef readonly dict codes
    cdef bint is_tracing
    cdef uint32_t trace_step, trace_left        # one of `trace_step` calls is traced whatever it carries; 0: none is
    cdef object chosen_slow
    cdef public dict topic_sends      # TopicSends by topic, of those whose outcomes are counted per topic
    cdef uint32_t counted_call        # number of the call that was counted last
    cdef public object figures        # TopicFigures; None: none are kept
    cdef double sampled_at            # when a call's time was noted there last, monotonic seconds
    cdef bint is_mixed                # the current call's messages are of several topics
    cdef bint is_buffered             # their topics have a fallback buffer
    cdef public double switch_s       # see SendTarget.switch_s, of the engine
    cdef int assign(self, unsigned char* id16, uint64_t now_ms) except -1
    cdef int tell_topics(self, CallResults call) except -1
    cdef list counted_topics(self, CallResults call)
    cdef bint check(self, Destination destination) except -1
    cdef int observe(self, CallResults call, double now) except -1
    cdef CallDecision traced(self, int decision, const unsigned char* frame) noexcept

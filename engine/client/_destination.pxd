# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from common.limits._meter cimport Meter
from common.wire._walk cimport murmur2
from engine.client._durability cimport LANE_COUNT


cdef class Destination:
    cdef readonly bytes name
    cdef readonly uint32_t topic_id
    cdef readonly uint32_t queues
    cdef readonly uint32_t first_queue           # the first one that takes new messages; those before are only read
    cdef readonly uint32_t body_bytes_max
    cdef readonly unsigned char durability       # number of the topic's durability class: 1 to DURABILITY_MAX
    cdef public bint buffered         # the topic has a fallback buffer
    cdef public bint diverted         # its fallback buffer has a backlog: the rare path decides per message
    cdef readonly uint32_t id_window_ms          # how long clients' ids are checked for duplicates; 0: never
    cdef readonly bytes homes         # the broker group of each queue, one byte each; None: there is only one
    cdef readonly bytes ids           # u32 topic id at each broker group, 0: not known; None: there is only one
    cdef bint used                    # found since the table's clock hand passed it
    cdef public Meter meter           # of the topic's rate limit; None: it has none
    cdef public unsigned char grade   # 0 high, 1 normal, 2 low
    cdef public bint is_special       # its messages need more than the hot path does: rules, or a refusal
    cdef public bint is_doubled       # the topic is written to two sides: without a tap, the rare path does that
    cdef public object tap            # AppendTap that gets to know its messages; None: there is none
    cdef uint64_t tap_batch           # kept by the tap: the batch that had it last, and its number there
    cdef uint32_t tap_topic
    cdef uint32_t counted_call, counted_place    # kept by its user: the counted call that had it last, and its place there
    cdef public object lane           # KafkaLane that takes its messages; None: the engine's lanes do
    cdef public uint32_t checked_at   # generation of the configuration in which it was last checked; kept by its user
    cdef uint32_t sticky_append[LANE_COUNT]      # by lane: the append for which sticky_queue is valid
    cdef uint32_t sticky_queue[LANE_COUNT]       # by lane: the queue of messages without a key
    cdef uint32_t next_queue
    cdef public int64_t made_ms       # time of the topic's creation, 0: unknown; a topic created again is another one


cdef inline uint32_t queue_of_key(Destination destination, const unsigned char* key, Py_ssize_t size) noexcept:
    """The queue of a key, by Kafka's hash, among those that take new messages."""
    return destination.first_queue + (murmur2(key, size) & 0x7FFFFFFF) % (destination.queues - destination.first_queue)


cdef inline uint32_t queue_after(Destination destination, uint32_t queue) noexcept:
    """The next queue in the rotation of those that take new messages."""
    return queue + 1 if queue + 1 < destination.queues else destination.first_queue


cdef inline uint32_t topic_id_at(Destination destination, int group) except? 0:
    """The topic's id at a broker group; 0: not known.

    `group` is a home of the destination, so it lies within `ids`: see __init__.
    """
    if destination.ids is not None:
        return (<const uint32_t*><const char*>destination.ids)[group]
    return destination.topic_id


cdef class Destinations:
    cdef dict by_name
    cdef Py_ssize_t count_max
    cdef Py_ssize_t hand              # position in the dict at which eviction continues
    cdef Destination find(self, const unsigned char* name, Py_ssize_t size)
    cdef int make_room(self) except -1

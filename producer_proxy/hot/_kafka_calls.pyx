# cython: language_level=3, boundscheck=False, wraparound=False
"""Calls of the hot path to topics whose home is a Kafka cluster, each to one cluster: docs/design/0040-kafka-natively.md.

Bounds: as in _hot.pyx, whose examine() has filled the current call.
"""

from libc.stdint cimport uint32_t, uint64_t

from common.wire cimport _walk
from engine.client._destination cimport Destination
from engine.link.constants cimport ASSIGNED_ID_SIZE, CODE_OVERLOADED, DURABILITY_FSYNC, DURABILITY_REPLICATED_FSYNC
from producer_proxy.hot._admission cimport ADMIT, CODE_RATE_LIMITED, REFUSE
from producer_proxy.hot._admitted cimport AdmittedCredential
from producer_proxy.hot._call_results cimport CallResults
from producer_proxy.hot._front cimport GIVE, GO_SLOW, REFUSE_ALL, Front
from producer_proxy.requests._clock cimport unix_ms
from producer_proxy.targets._kafka_lane cimport KAFKA_AWAY, KAFKA_FULL, KafkaLane


cdef bint is_rare_on_kafka(Destination destination, const _walk.SendCall* call, const unsigned char* frame,
                           const _walk.Message* m) noexcept:
    """Whether a message needs the rare path: what is refused there by name, and topics with a fallback buffer."""
    cdef int durability = call.durability if call.durability else destination.durability
    if call.reply_wait_ms > 0 or durability == DURABILITY_FSYNC or durability == DURABILITY_REPLICATED_FSYNC:
        return True
    return destination.buffered or (
        m.flags & _walk.HAS_PROPERTIES != 0 and may_be_reserved(frame, m)
    )


cdef int conclude_kafka(Front front, KafkaLane lane, AdmittedCredential admitted, size_t bytes, slot) except -1:
    """Decide about a call to one Kafka cluster whose messages are all acceptable."""
    cdef int verdict, state = lane.state()
    if state == KAFKA_AWAY:
        return GO_SLOW
    front.call_bytes = bytes
    verdict = front.admission.verdict(admitted.meter, front.call.message_count, bytes, front.messages[0].size, slot)
    if verdict == REFUSE:
        front.refusal = CODE_RATE_LIMITED
        return REFUSE_ALL
    if verdict != ADMIT:
        return GO_SLOW
    if state == KAFKA_FULL:
        front.refusal, front.admission.retry_after_ms = CODE_OVERLOADED, front.retry_after_ms
        return REFUSE_ALL
    return GIVE


cdef int give(Front front, CallResults call, AdmittedCredential admitted, KafkaLane lane, const unsigned char* frame) except -1:
    """Give the messages of the current call to a cluster; `call` has just begun."""
    cdef _walk.Message* m
    cdef Destination destination
    cdef unsigned char id16[ASSIGNED_ID_SIZE]
    cdef uint32_t i
    cdef uint64_t now_ms = unix_ms()
    lane.join(call, front.call.message_count)
    front.admission.commit(admitted.meter, front.call.message_count, front.call_bytes)
    for i in range(front.call.message_count):
        m = &front.messages[i]
        destination = <Destination>front.chosen[i]
        if destination.meter is not None:
            destination.meter.commit(front.admission.call)
        if m.flags & _walk.HAS_ID:
            call.set_id(i, frame + m.id_start, m.id_size, False)
            lane.add(destination.name, NULL, frame + m.start, m.size)
        else:
            front.assign(id16, now_ms)
            call.set_id(i, id16, ASSIGNED_ID_SIZE, True)
            lane.add(destination.name, id16, frame + m.start, m.size)
    return 0

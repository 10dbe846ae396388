# cython: language_level=3
from common.wire cimport _walk
from engine.client._destination cimport Destination
from producer_proxy.hot._admitted cimport AdmittedCredential
from producer_proxy.hot._call_results cimport CallResults
from producer_proxy.hot._front cimport Front
from producer_proxy.targets._kafka_lane cimport KafkaLane

cdef extern from "string.h" nogil:
    void* memmem(const void* text, size_t size, const void* needle, size_t needle_size)


cdef inline bint may_be_reserved(const unsigned char* frame, const _walk.Message* m) noexcept:
    """Whether a property's name may begin as those that a Kafka side refuses."""
    return memmem(frame + m.start, m.size, b"penstock-", 9) != NULL


cdef bint is_rare_on_kafka(Destination destination, const _walk.SendCall* call, const unsigned char* frame,
                           const _walk.Message* m) noexcept
cdef int conclude_kafka(Front front, KafkaLane lane, AdmittedCredential admitted, size_t bytes, slot) except -1
cdef int give(Front front, CallResults call, AdmittedCredential admitted, KafkaLane lane, const unsigned char* frame) except -1

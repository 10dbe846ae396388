# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t

from common.net._connection cimport Connection

cdef enum:
    FIELD_HEAD = 7                    # of a string: type, id, size


cdef struct Result:                   # of one message of a send
    int32_t code
    uint32_t queue
    int64_t offset
    uint32_t id_at                    # among the ids of its call, as shown
    uint32_t id_size


cdef int encode_results(Connection connection, int32_t seqid, uint32_t count, const Result* results, const unsigned char* ids,
                        dict sentences, dict told, dict codes, int32_t retry_after_ms, object figures, bytes topic,
                        str application) except -1
cdef int encode_result(Connection connection, int32_t seqid, int32_t code, bytes shown_id, uint32_t queue, int64_t offset,
                       int32_t retry_after_ms, bytes sentence, bytes reply) except -1

# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t

from common.net._connection cimport Connection
from common.wire._walk cimport Message, SendCall
from engine.client._append_request cimport Waiter
from engine.client._destination cimport Destination
from engine.client._lane cimport Lane


cdef class RequestCalls:
    cdef object requests
    cdef dict codes, store_sentences, wait_sentences, reply_sentences
    cdef int32_t retry_after_ms
    cdef public bint takes_replies    # no operator has switched them off
    cdef int count(self, int code) except -1
    cdef bint is_plain_request(self, const SendCall* call)
    cdef bint is_plain_reply(self, const SendCall* call, const Message* message)
    cdef HotRequest ask(self, Connection connection, str application, Lane lane, Destination destination, uint32_t queue, const unsigned char* frame,
                        const SendCall* call, const Message* message, const unsigned char* id16)
    cdef int reply(self, Connection connection, bytes reply_key, const unsigned char* frame, const SendCall* call, const Message* message, double timeout_s) except -1


cdef class HotRequest(Waiter):
    cdef Connection connection        # None: answered, or the client disconnected
    cdef RequestCalls calls
    cdef Destination destination
    cdef object opened                # OpenRequest
    cdef str application
    cdef bytes shown_id
    cdef bint has_own_id
    cdef int32_t seqid, code
    cdef uint32_t queue
    cdef int64_t offset
    cdef int answer(self, int code, bytes sentence, bytes reply) except -1
    cdef int refuse(self, int code) except -1


cdef class HotReply:
    cdef Connection connection
    cdef RequestCalls calls
    cdef bytes shown_id               # None: the message has none
    cdef int32_t seqid

# cython: language_level=3, boundscheck=False, wraparound=False
"""Requests and replies on the hot path: one per call, in loop callbacks, without a greenlet or a decoded message.

requests/requests.py keeps the open requests of both paths; the reference for every answer is requests/calls.py.
"""

from common.net._connection cimport Connection
from common.net._reactor cimport monotonic_s
from common.wire._walk cimport HAS_DELAY, HAS_DELIVER_AT, HAS_ID, HAS_REPLY_TO, Message, SendCall
from engine.client._append_request cimport Waiter
from engine.client._destination cimport Destination
from engine.client._lane cimport Lane
from engine.link.constants cimport ASSIGNED_ID_SIZE, CODE_DUPLICATE, CODE_OK, CODE_OVERLOADED, CODE_TIMEOUT
from producer_proxy.hot._answers cimport FIELD_HEAD, encode_result

from common.wire.calls import BODY_BYTES_MAX
from producer_proxy.requests import calls as request_calls

cdef int32_t WAIT_MS_MAX = request_calls.REPLY_WAIT_MS_MAX
cdef uint32_t REPLY_BYTES_MAX = BODY_BYTES_MAX


cdef class RequestCalls:
    """State of requests and replies that the hot connections of a proxy share.

    Args:
        requests: GroupedRequests.
        codes: counts of answers by code. store_sentences: by code, of requests that were not stored.
    """

    def __init__(self, requests, dict codes, dict store_sentences, int retry_after_ms):
        self.requests, self.codes, self.store_sentences = requests, codes, store_sentences
        self.wait_sentences = {int(code): text.encode() for code, text in request_calls.WAIT_SENTENCES.items()}
        self.reply_sentences = {int(code): text.encode() for code, text in request_calls.REPLY_SENTENCES.items()}
        self.retry_after_ms, self.takes_replies = retry_after_ms, True

    cdef int count(self, int code) except -1:
        if code:
            self.codes[code] = self.codes.get(code, 0) + 1
        return 0

    cdef bint is_plain_request(self, const SendCall* call):
        return 0 < call.reply_wait_ms <= WAIT_MS_MAX

    cdef bint is_plain_reply(self, const SendCall* call, const Message* message):
        """Whether a call without a fault consists of exactly one reply."""
        return (
            self.takes_replies and call.message_count == 1 and call.reply_wait_ms == 0 and message.flags & HAS_REPLY_TO != 0
            and not message.flags & (HAS_DELIVER_AT | HAS_DELAY) and not message.operation and not message.fault
            and message.body_size <= REPLY_BYTES_MAX
        )

    cdef HotRequest ask(self, Connection connection, str application, Lane lane, Destination destination, uint32_t queue, const unsigned char* frame,
                        const SendCall* call, const Message* message, const unsigned char* id16):
        """Append a request without a fault; it answers its connection later, or at once when too many are open.

        Args:
            id16: the assigned id; NULL when the message has its own.
        """
        cdef HotRequest asked = HotRequest.__new__(HotRequest)
        cdef bytes token
        cdef int32_t wait_ms = call.reply_wait_ms
        asked.connection, asked.calls, asked.destination, asked.seqid = connection, self, destination, call.seqid
        asked.has_own_id, asked.code = id16 == NULL, CODE_TIMEOUT
        asked.application = application
        if id16 == NULL:
            asked.shown_id = frame[message.id_start:message.id_start + message.id_size]
        else:
            asked.shown_id = (<bytes>id16[:ASSIGNED_ID_SIZE]).hex().encode()
        asked.opened = self.requests.open(asked, lane.group, wait_ms)
        if asked.opened is None:
            asked.refuse(CODE_OVERLOADED)
            return asked
        token = asked.opened.token
        asked.deadline = monotonic_s() + (min(call.timeout_ms, wait_ms) if call.timeout_ms > 0 else wait_ms) / 1000.0
        lane.join(asked)
        lane.add(destination, queue, id16, frame + message.start, message.size, token, True, 0)
        return asked

    cdef int reply(self, Connection connection, bytes reply_key, const unsigned char* frame, const SendCall* call, const Message* message, double timeout_s) except -1:
        """Pass on a plain reply; its connection is answered when its arrival is known.

        Bounds: the walker has checked the slices of the message. `cut` cannot wrap, because the token's field head lies
        before the token.
        """
        cdef HotReply replying = HotReply.__new__(HotReply)
        cdef uint32_t cut = message.reply_to_start - FIELD_HEAD
        cdef uint32_t rest = message.reply_to_start + message.reply_to_size
        cdef bytes token = frame[message.reply_to_start:rest]
        replying.connection, replying.calls, replying.seqid = connection, self, call.seqid
        if message.flags & HAS_ID:
            replying.shown_id = frame[message.id_start:message.id_start + message.id_size]
        # The asker gets the message without its reply_to.
        code = self.requests.pass_on(
            token, reply_key, frame[message.start:cut] + frame[rest:message.start + message.size], replying.tell, int(timeout_s * 1000)
        )
        if code is not None:
            replying.tell(code)
        return 0


cdef class HotRequest(Waiter):
    """One open request; a RequestAsker of requests.py."""

    @property
    def is_gone(self):
        return self.connection is None or self.connection.is_closed

    def tell(self, int code, bytes reply):
        """Answer a stored request with its outcome."""
        self.answer(code, self.calls.wait_sentences.get(code), reply)

    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1:
        self.code, self.queue, self.offset = code, queue, offset
        return 0

    cdef int done(self) except -1:
        if self.code != CODE_OK and self.code != CODE_DUPLICATE:
            return self.expire()
        place = (self.application, self.destination.name, self.shown_id, self.queue, self.offset) if self.has_own_id else None
        self.opened.stored(place, self.code == CODE_DUPLICATE)
        return 0

    cdef int expire(self) except -1:
        """Answer a request that was not stored, or may not be."""
        self.opened.end()
        return self.refuse(self.code)

    cdef int refuse(self, int code) except -1:
        self.offset = -1
        return self.answer(code, self.calls.store_sentences.get(code, b""), None if self.opened is None else self.opened.reply)

    cdef int answer(self, int code, bytes sentence, bytes reply) except -1:
        cdef Connection connection = self.connection
        self.connection = None
        if connection is None or connection.is_closed:
            return 0
        self.calls.count(code)
        encode_result(connection, self.seqid, code, self.shown_id, self.queue, self.offset, self.calls.retry_after_ms, sentence, reply)
        return connection.answered()


cdef class HotReply:
    """One reply in transit."""

    def tell(self, int code):
        """Report the outcome."""
        if self.connection.is_closed:
            return
        self.calls.count(code)
        sentence = self.calls.reply_sentences.get(code)
        encode_result(self.connection, self.seqid, code, self.shown_id, 0, -1, self.calls.retry_after_ms, sentence, None)
        self.connection.answered()

# cython: language_level=3, boundscheck=False, wraparound=False
"""The hot path of send: from the socket's bytes to the broker's batch and back, in loop callbacks, without an object a message.

It takes only what is common: a credential that verified before, topics that are known and granted, no fault, no delay. A request, and a call
of one reply, go on in _request_calls.pyx. Everything else, whole calls at a time, goes to `slow(connection, frame)`, which is producer_proxy/send/send.py and the reference for every answer.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_UNKNOWN
from common.net._reactor cimport reactor_of
from common.wire cimport _walk
from engine.client._batcher cimport Lane, Waiter
from engine.client._destination cimport Destination, Destinations
from engine.client._lanes cimport NO_QUEUE, Lanes
from producer_proxy.hot._admitted cimport Admitted
from producer_proxy.hot._answers cimport Result, encode_results
from producer_proxy.hot._bytes cimport put_be32, put_be64, unix_ms
from producer_proxy.hot._admission cimport HotGate
from producer_proxy.requests._calls cimport HotRequest, RequestCalls

from producer_proxy.buffer.fallback import patience_s

cdef enum:
    MESSAGES_MAX = 1000
    RARE_FLAGS = 64 | 128 | 512       # HAS_DELIVER_AT, HAS_DELAY, HAS_REPLY_TO
    BODY_BYTES_ANY = 16384000         # the topic's own limit is checked once the topic is known
    LATENCY_BUCKETS = 16              # powers of two from 62.5 µs

cdef const char* HEX = b"0123456789abcdef"


cdef class Front:
    """What all connections of a producer proxy share.

    Args:
        memory, fsync: the lanes of both classes of durability.
        destinations: of the topics that are known; filled by the slow path.
        is_right: asked about a destination at its first use after a change of the configuration, whose generation this is.
        slow: called as (connection, frame bytes) in a loop callback for every call that is not common.
        sentences: contract code -> the sentence that goes with it, as bytes.
        process_bytes: 6 random bytes, the middle of every id assigned here; see common/ids.py for the layout.
        rescue: called as (connection, frame bytes, [(code, queue, offset, id)]) for a call to buffered topics that the engine failed.
        requests: GroupedRequests, the open requests.
    """

    cdef Lanes memory
    cdef Lanes fsync
    cdef Destinations destinations
    cdef object is_right
    cdef uint32_t generation
    cdef object slow
    cdef readonly HotGate gate
    cdef readonly RequestCalls request_calls
    cdef dict sentences
    cdef dict admitted
    cdef unsigned char process_bytes[6]
    cdef uint32_t id_counter
    cdef double timeout_s
    cdef int32_t retry_after_ms
    cdef _walk.SendCall call
    cdef _walk.Message* messages
    cdef void** chosen                # Destination of each message of the call in hand
    cdef uint32_t queues[MESSAGES_MAX]          # and its queue, where there are several broker groups
    cdef size_t call_bytes            # of its messages
    cdef public bint closing
    cdef public bint diverting        # the engine is suspected: calls to buffered topics take the slow path
    cdef object rescue
    cdef readonly uint64_t calls, hot_calls, hot_messages, bytes_in
    cdef uint64_t latency[LATENCY_BUCKETS]
    cdef readonly double latency_sum_s
    cdef readonly dict codes

    def __init__(self, Lanes memory, Lanes fsync, Destinations destinations, is_right, generation, slow, dict sentences,
                 bytes process_bytes, int timeout_ms, int retry_after_ms, rescue, requests):
        self.memory, self.fsync, self.slow, self.sentences, self.rescue = memory, fsync, slow, sentences, rescue
        self.destinations, self.is_right, self.generation = destinations, is_right, generation & 0xFFFFFFFF
        self.admitted, self.codes, self.gate = {}, {}, HotGate()
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

    def connection(self, int fd, limits, str peer, ssl_context, prefix_check):
        """A connection served by this front; it owns the descriptor."""
        return HotConnection(self, fd, limits, peer, ssl_context, prefix_check)

    def admit(self, bytes credential, double expires_at, patterns, meter, origin):
        """The slow path has verified these credential bytes, whose holder may send to what matches, within the meter's limit;
        `expires_at` in monotonic seconds."""
        if credential in self.admitted:
            return
        if len(self.admitted) >= 10_000:
            self.admitted.clear()
        self.admitted[credential] = Admitted(credential, expires_at, patterns, meter, origin)

    def forget(self, generation):
        """The configuration changed: every credential is verified anew, and every destination held against its definition."""
        cdef Admitted admitted
        self.generation = generation & 0xFFFFFFFF
        for admitted in self.admitted.values():
            admitted.expires_at = 0       # connections hold their last one
        self.admitted.clear()

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
        """Hold a destination against its definition, once a change of the configuration."""
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


cdef class HotCall(Waiter):
    """One call in work. A connection reuses its own until a deadline passes: then it answers, and the late results find nobody."""

    cdef HotConnection connection
    cdef Front front
    cdef bytes frame                  # kept while one of the call's topics is buffered, else None
    cdef int32_t seqid
    cdef uint32_t count
    cdef uint32_t results_cap
    cdef Result* results
    cdef unsigned char* ids
    cdef size_t ids_used, ids_cap
    cdef double started_at
    cdef int32_t retry_after_ms

    def __dealloc__(self):
        free(self.results)
        free(self.ids)

    cdef int start(self, int32_t seqid, uint32_t count, double now, double timeout_s) except -1:
        if count > self.results_cap:
            self.results = <Result*>grow(self.results, count * sizeof(Result))
            self.results_cap = count
        self.seqid, self.count, self.waiting, self.retry_after_ms = seqid, count, 0, self.front.retry_after_ms
        self.ids_used = 0
        self.started_at, self.deadline = now, now + timeout_s
        return 0

    cdef int set_id(self, uint32_t index, const unsigned char* id, uint32_t size, bint assigned) except -1:
        cdef uint32_t shown = size * 2 if assigned else size
        cdef unsigned char* out
        cdef uint32_t i
        if self.ids_used + shown > self.ids_cap:
            self.ids_cap = max(64, 2 * (self.ids_used + shown))
            self.ids = <unsigned char*>grow(self.ids, self.ids_cap)
        out = self.ids + self.ids_used
        if assigned:
            for i in range(size):
                out[2 * i] = HEX[id[i] >> 4]
                out[2 * i + 1] = HEX[id[i] & 15]
        else:
            memcpy(out, id, size)
        self.results[index].id_at, self.results[index].id_size = <uint32_t>self.ids_used, shown
        self.results[index].code = 300    # until it is answered
        self.ids_used += shown
        return 0

    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1:
        self.results[index].code, self.results[index].queue, self.results[index].offset = code, queue, offset
        return 0

    cdef int done(self) except -1:
        cdef HotConnection connection = self.connection
        if connection is None:
            return 0
        if self.frame is not None and self.failed():
            return self.hand_over()
        self.encode()
        self.front.observe(connection.reactor.now - self.started_at)
        return connection.answered()

    cdef int expire(self) except -1:
        cdef HotConnection connection = self.connection
        if connection is None:
            return 0
        if self.frame is not None:
            return self.hand_over()
        self.encode()
        self.connection = None
        connection.call = None
        return connection.answered()

    cdef bint failed(self) noexcept:
        cdef uint32_t i
        for i in range(self.count):
            if self.results[i].code in (201, 203, 300):     # DIVERTED_CODES
                return True
        return False

    cdef int hand_over(self) except -1:
        """To the buffer, in a greenlet, which answers the call."""
        cdef HotConnection connection = self.connection
        cdef Result* r
        cdef uint32_t i
        outcomes = []
        for i in range(self.count):
            r = &self.results[i]
            outcomes.append((r.code, r.queue, r.offset, self.ids[r.id_at:r.id_at + r.id_size]))
        self.connection = connection.call = None
        self.front.rescue(connection, self.frame, outcomes)
        return 0

    cdef int encode(self) except -1:
        cdef Front front = self.front
        if self.connection.is_closed:
            return 0
        encode_results(self.connection, self.seqid, self.count, self.results, self.ids, front.sentences, front.codes, self.retry_after_ms)
        front.hot_calls += 1
        front.hot_messages += self.count
        return 0


cdef class HotConnection(Connection):
    """A client of the producer proxy."""

    cdef Front front
    cdef HotCall call
    cdef HotRequest request            # the last one
    cdef Admitted last
    cdef object prefix_check
    cdef int refusal                  # the code that the whole call in hand is refused with
    cdef bint is_reply                # the call in hand is one, and plain

    def __init__(self, Front front, int fd, limits, str peer, ssl_context, prefix_check):
        self.front, self.prefix_check = front, prefix_check
        Connection.__init__(self, fd, limits, peer, PROTOCOL_UNKNOWN, ssl_context)

    cdef bint on_prefix(self, const unsigned char* frame, Py_ssize_t size) except -1:
        return self.prefix_check(self, frame[:size])

    cdef int on_closed(self) except -1:
        if self.call is not None:
            self.call.connection = None
            self.call = None
        if self.request is not None:
            self.request.connection = None
            self.request = None
        return Connection.on_closed(self)

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef Lanes lanes
        self.front.calls += 1
        self.front.bytes_in += size
        self.busy = True
        self.refusal, self.is_reply = 0, False
        lanes = self.examine(frame, size)
        if lanes is not None:
            if self.front.call.reply_wait_ms:
                self.ask(lanes, frame)
            else:
                self.take(lanes, frame, size)
        elif self.refusal:
            self.refuse(frame)
        elif self.is_reply:
            self.reply(frame)
        else:
            self.front.slow(self, frame[:size])
        return 0

    cdef Lanes examine(self, const unsigned char* frame, Py_ssize_t size):
        """The lanes that take the whole call, or None for the slow path; fills front.call, .messages, .chosen and .queues."""
        cdef Front front = self.front
        cdef _walk.SendCall* call = &front.call
        cdef _walk.Message* m
        cdef const unsigned char* topic = NULL
        cdef uint32_t topic_size = 0, i
        cdef Destination destination = None
        cdef Admitted admitted
        cdef int durability, wanted
        cdef size_t total = 0
        cdef int grade = 0
        cdef bint is_mixed = False, is_buffered = False, is_crowded = False
        cdef Lanes lanes = None
        if front.closing or _walk.walk_send(frame, size, call, front.messages, MESSAGES_MAX, BODY_BYTES_ANY) != 0:
            return None
        if call.fault or call.message_count == 0 or (call.reply_wait_ms > 0 and not front.request_calls.is_plain_request(call)):
            return None
        admitted = self.admission(frame + call.credential_start, call.credential_size)
        if admitted is None:
            return None
        wanted = call.durability
        front.gate.begin(self.reactor.now)
        for i in range(call.message_count):
            m = &front.messages[i]
            if m.fault or m.flags & RARE_FLAGS or m.operation:
                self.is_reply = front.request_calls.is_plain_reply(call, m)
                return None
            if m.topic_size != topic_size or memcmp(topic, frame + m.topic_start, topic_size) != 0:
                topic, topic_size = frame + m.topic_start, m.topic_size
                destination = front.destinations.find(topic, topic_size) if admitted.may_send(topic, topic_size) else None
                if destination is None or (destination.checked_at != front.generation and not front.check(destination)):
                    return None
            if m.body_size > destination.body_bytes_max or destination.is_special:
                return None
            if destination.buffered and (destination.diverted or front.diverting):
                return None
            if destination.meter is not None:
                front.gate.weigh(destination.meter, m.size, i)
            durability = wanted if wanted else destination.durability
            if lanes is None:
                lanes = front.memory if durability == 1 else front.fsync
            elif lanes is not (front.memory if durability == 1 else front.fsync):
                return None                   # one call of two classes is rare
            total += m.size
            grade = max(grade, destination.grade)
            is_buffered = is_buffered or destination.buffered
            front.chosen[i] = <void*>destination
            is_mixed = is_mixed or front.chosen[0] != front.chosen[i]
            if lanes.only is None:
                front.queues[i] = lanes.choose_for(destination, frame, m)
                if front.queues[i] == NO_QUEUE:
                    return None
                is_crowded = is_crowded or not lanes.home(destination, front.queues[i]).lets_in(call.message_count, destination.grade)
        if not lanes.take_all(total + 96 * call.message_count):
            return None
        front.call_bytes = total
        wanted = front.gate.verdict(admitted.meter, call.message_count, total, front.messages[0].size)
        if lanes.only is not None:
            is_crowded = not lanes.only.lets_in(call.message_count, grade)
        if wanted == 0 and is_crowded:
            # Of a call over several queues, some messages may have room elsewhere.
            self.refusal = 0 if is_mixed or is_buffered or (lanes.only is None and call.message_count > 1) else 201
            front.gate.retry_after_ms = front.retry_after_ms
            return None
        self.refusal = 200 if wanted == 2 else 0
        return lanes if wanted == 0 else None

    cdef Admitted admission(self, const unsigned char* credential, uint32_t size):
        cdef Admitted last = self.last
        if last is None or len(last.credential) != size or memcmp(<const unsigned char*>last.credential, credential, size) != 0 \
                or last.expires_at == 0:
            last = self.front.admitted.get(credential[:size])
            if last is not None and not last.may_come_by(self):
                last = None                    # the slow path says why
            self.last = last
        if last is None or self.reactor.now > last.expires_at:
            return None
        self.is_trusted = True
        return last

    cdef HotCall begin(self, double timeout_s):
        cdef HotCall call = self.call
        if call is None:
            call = self.call = HotCall()
            call.connection, call.front = self, self.front
        call.frame = None
        call.start(self.front.call.seqid, self.front.call.message_count, self.reactor.now, timeout_s)
        return call

    cdef int refuse(self, const unsigned char* frame) except -1:
        """Answer every message of the call in hand with `refusal`; nothing of it was taken."""
        cdef Front front = self.front
        cdef HotCall call = self.begin(0)
        cdef _walk.Message* m
        cdef uint32_t i
        call.retry_after_ms = front.gate.retry_after_ms
        for i in range(front.call.message_count):
            m = &front.messages[i]
            call.set_id(i, frame + m.id_start, m.id_size if m.flags & 32 else 0, False)
            call.result(i, self.refusal, 0, -1)
        return call.done()

    cdef int ask(self, Lanes lanes, const unsigned char* frame) except -1:
        cdef Front front = self.front
        cdef _walk.Message* m = &front.messages[0]
        cdef Destination destination = <Destination>front.chosen[0]
        cdef Lane lane = lanes.only
        cdef unsigned char id16[16]
        cdef uint32_t queue
        if lane is None:
            queue = front.queues[0]
            lane = lanes.home(destination, queue)
        else:
            queue = lane.choose_queue(destination, frame + m.key_start, m.key_size if m.flags & _walk.HAS_KEY else -1)
        front.gate.commit(self.last.meter, 1, front.call_bytes)
        if destination.meter is not None:
            destination.meter.commit(front.gate.call)
        front.hot_calls += 1
        front.hot_messages += 1
        if m.flags & _walk.HAS_ID:
            self.request = front.request_calls.ask(self, lane, destination, queue, frame, &front.call, m, NULL)
        else:
            front.assign(id16, unix_ms())
            self.request = front.request_calls.ask(self, lane, destination, queue, frame, &front.call, m, id16)
        return 0

    cdef int reply(self, const unsigned char* frame) except -1:
        cdef Front front = self.front
        cdef double timeout_s = front.call.timeout_ms / 1000.0 if front.call.timeout_ms > 0 else front.timeout_s
        front.hot_calls += 1
        front.hot_messages += 1
        return front.request_calls.reply(self, frame, &front.call, &front.messages[0], timeout_s)

    cdef int take(self, Lanes lanes, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef Front front = self.front
        cdef Lane lane = lanes.only
        cdef HotCall call
        cdef _walk.Message* m
        cdef Destination destination
        cdef unsigned char id16[16]
        cdef uint32_t i, queue
        cdef uint64_t now_ms = unix_ms()
        cdef bint buffered = False, bound
        cdef double timeout_s = front.call.timeout_ms / 1000.0 if front.call.timeout_ms > 0 else front.timeout_s
        for i in range(front.call.message_count):
            buffered = buffered or (<Destination>front.chosen[i]).buffered
        call = self.begin(patience_s(timeout_s) if buffered else timeout_s)
        if buffered:
            call.frame = frame[:size]
        if lane is not None:
            lane.join(call)
        front.gate.commit(self.last.meter, front.call.message_count, front.call_bytes)
        for i in range(front.call.message_count):
            m = &front.messages[i]
            destination = <Destination>front.chosen[i]
            if destination.meter is not None:
                destination.meter.commit(front.gate.call)
            bound = m.flags & _walk.HAS_KEY != 0
            if lanes.only is None:
                queue = front.queues[i]
                lane = lanes.home(destination, queue)
                lane.enter(call)
                bound = bound or (m.flags & _walk.HAS_ID != 0 and destination.id_window_ms != 0)
            else:
                queue = lane.choose_queue(destination, frame + m.key_start, m.key_size if m.flags & 4 else -1)
            if m.flags & 32:
                call.set_id(i, frame + m.id_start, m.id_size, False)
                lane.add(destination, queue, NULL, frame + m.start, m.size, NULL, bound, i)
            else:
                front.assign(id16, now_ms)
                call.set_id(i, id16, 16, True)
                lane.add(destination, queue, id16, frame + m.start, m.size, NULL, bound, i)
        return 0


cdef void* grow(void* old, size_t size) except NULL:
    cdef void* grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError()
    return grown

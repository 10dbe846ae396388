# cython: language_level=3, boundscheck=False, wraparound=False
"""The hot path of send: from the socket's bytes to the broker's batch and back, in loop callbacks, without a Python
object per message.

It takes only common calls: a credential that was verified before, topics at the engine that are known and granted, no
fault, no delay. Requests, and calls of one reply, continue in _request_calls.pyx. All other calls go as a whole to
`slow(connection, frame)`, which is producer_proxy/send/send.py and the reference for every answer.

The state of an open call is in two places. The front holds the results of examine() until the next call: see "the
current call" in _front.pxd. A HotCall holds the state until the answer.

Bounds: offsets into the frame come from the walker, which has checked them against the frame's size.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_UNKNOWN
from common.wire cimport _walk
from engine.client._destination cimport Destination
from engine.client._lane cimport Lane
from engine.client._lanes cimport NO_QUEUE, Lanes
from engine.link.constants cimport ASSIGNED_ID_SIZE, CODE_OVERLOADED
from producer_proxy.hot._admission cimport ADMIT, CODE_RATE_LIMITED, REFUSE
from producer_proxy.hot._admitted cimport AdmittedCredential
from producer_proxy.hot._answers cimport encode_results
from producer_proxy.hot._call_results cimport CallResults
from producer_proxy.hot._front cimport ASK, GIVE, GO_SLOW, MESSAGES_MAX, PASS_REPLY, REFUSE_ALL, TAKE, TRACE, Front
from producer_proxy.hot._kafka_calls cimport conclude_kafka, give, is_rare_on_kafka, may_be_reserved
from producer_proxy.hot._request_calls cimport HotRequest
from producer_proxy.journal._tap cimport DualTap
from producer_proxy.requests._clock cimport unix_ms
from producer_proxy.targets._kafka_lane cimport KafkaLane

from producer_proxy.buffer.fallback import patience_s

cdef enum:
    RARE_FLAGS = _walk.HAS_DELIVER_AT | _walk.HAS_DELAY | _walk.HAS_REPLY_TO
    BODY_BYTES_ANY = 16384000         # the topic's limit is checked after the topic's look-up
    RECORD_MORE = 96                  # maximum overhead per message in an append

cdef struct CallTotals:               # over the messages of the current call
    size_t bytes
    int grade                         # the lowest: 2 low, 1 normal, 0 high
    bint is_mixed                     # of several topics
    bint is_buffered                  # a topic has a fallback buffer
    bint is_unbuffered                # a topic has none
    bint is_crowded                   # a lane is full; with several broker groups, at the time of examine()


cdef class HotCall(CallResults):
    """One open call.

    A connection reuses its HotCall until a deadline passes: then the call is answered, and late results are dropped.
    """

    cdef HotConnection connection     # None: answered, or the client disconnected
    cdef Front front
    cdef bytes frame                  # kept while the rare path may have to take over, else None

    cdef int done(self) except -1:
        cdef HotConnection connection = self.connection
        if connection is None:
            return 0
        if self.frame is not None and self.failed():
            return self.hand_over()
        self.encode()
        self.front.observe(self, connection.reactor.now)
        return connection.answered()

    cdef int expire(self) except -1:
        cdef HotConnection connection = self.connection
        if connection is None:
            return 0
        if self.frame is not None:
            return self.hand_over()
        self.encode()
        self.connection = connection.call = None
        return connection.answered()

    cdef int hand_over(self) except -1:
        """Pass the call to a greenlet, which diverts failed messages, follows claims of ids, and answers."""
        cdef HotConnection connection = self.connection
        self.connection = connection.call = None
        self.front.rescue(connection, self.frame, self.outcomes())
        return 0

    cdef int encode(self) except -1:
        cdef Front front = self.front
        if self.connection.is_closed:
            return 0
        encode_results(self.connection, self.seqid, self.count, self.results, self.ids, front.sentences, self.told, front.codes, self.retry_after_ms, front.figures, self.topic, "" if self.connection.last is None else self.connection.last.application)
        front.hot_calls += 1
        front.hot_messages += self.count
        self.note()
        return 0


cdef class HotConnection(Connection):
    """A client of the producer proxy, served by this front; owns the descriptor."""

    cdef Front front
    cdef HotCall call
    cdef HotRequest request            # the last one
    cdef readonly AdmittedCredential last       # of the last call, if it was on the hot path
    cdef object prefix_check

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
        cdef int decision
        self.front.calls += 1
        self.front.bytes_in += size
        self.busy = True
        decision = self.front.traced(self.examine(frame, size), frame)
        if decision == TAKE:
            self.take(<Lanes>self.front.call_lanes, frame, size)
        elif decision == GIVE:
            give(self.front, self.begin(self.timeout_s()), self.last, <KafkaLane>self.front.call_lanes, frame)
            self.retry_slot = None
        elif decision == ASK:
            self.ask(<Lanes>self.front.call_lanes, frame)
        elif decision == REFUSE_ALL:
            self.refuse(frame)
        elif decision == PASS_REPLY:
            self.reply(frame)
        else:
            (self.front.chosen_slow if decision == TRACE else self.front.slow)(self, frame[:size])
        return 0

    cdef int examine(self, const unsigned char* frame, Py_ssize_t size) except -1:
        """Decide about a whole call; fills in the current call as far as the decision needs it."""
        cdef Front front = self.front
        cdef _walk.SendCall* call = &front.call
        cdef _walk.Message* m
        cdef const unsigned char* topic = NULL
        cdef uint32_t topic_size = 0, i
        cdef Destination destination = None
        cdef AdmittedCredential admitted
        cdef CallTotals totals
        cdef void* lanes = NULL
        cdef void* serving
        if front.closing or _walk.walk_send(frame, size, call, front.messages, MESSAGES_MAX, BODY_BYTES_ANY) != 0:
            return GO_SLOW
        if call.fault or call.message_count == 0 or (call.reply_wait_ms > 0 and not front.request_calls.is_plain_request(call)):
            return GO_SLOW
        admitted = self.admitted(frame + call.credential_start, call.credential_size)
        if admitted is None:
            return GO_SLOW
        totals.bytes, totals.grade = 0, 0
        totals.is_mixed = totals.is_buffered = totals.is_unbuffered = totals.is_crowded = False
        front.admission.begin(self.reactor.now)
        for i in range(call.message_count):
            m = &front.messages[i]
            if m.fault or m.flags & RARE_FLAGS or m.operation:
                return PASS_REPLY if front.request_calls.is_plain_reply(call, m) else GO_SLOW
            if m.topic_size != topic_size or memcmp(topic, frame + m.topic_start, topic_size) != 0:
                topic, topic_size = frame + m.topic_start, m.topic_size
                destination = usable(front, admitted, topic, topic_size)
                if destination is None:
                    return GO_SLOW
            if is_rare(front, destination, m) or (m.flags & _walk.HAS_ID and is_assigned(frame + m.id_start, m.id_size)):
                return GO_SLOW
            if destination.is_doubled and is_rare_dual(destination, call, frame, m):
                return GO_SLOW
            if destination.meter is not None:
                front.admission.weigh(destination.meter, m.size, i)
            # The walker faults a call whose durability is not 0 to DURABILITY_MAX; a destination's is checked when it
            # is made.
            serving = front.lanes_by_class[call.durability if call.durability else destination.durability]
            if destination.lane is not None:
                if is_rare_on_kafka(destination, call, frame, m):
                    return GO_SLOW
                serving = <void*>destination.lane
            if lanes == NULL:
                lanes = serving
            elif lanes != serving:
                return GO_SLOW                # one call over several lanes is rare
            totals.bytes += m.size
            totals.grade = max(totals.grade, destination.grade)
            totals.is_buffered = totals.is_buffered or destination.buffered
            totals.is_unbuffered = totals.is_unbuffered or not destination.buffered
            front.chosen[i] = <void*>destination
            totals.is_mixed = totals.is_mixed or front.chosen[0] != front.chosen[i]
            if destination.lane is None and (<Lanes>lanes).only is None and not choose_queue(front, <Lanes>lanes, destination, frame, i, &totals):
                return GO_SLOW
        front.call_lanes, front.is_mixed, front.is_buffered = lanes, totals.is_mixed, totals.is_buffered
        if destination.lane is not None:
            return conclude_kafka(front, <KafkaLane>lanes, admitted, totals.bytes, self.retry_slot)
        return conclude(front, <Lanes>lanes, admitted, &totals, self.retry_slot)

    cdef AdmittedCredential admitted(self, const unsigned char* credential, uint32_t size):
        """The verified credential with these bytes. None: the rare path must verify it, or refuse the connection."""
        cdef AdmittedCredential last = self.last
        if last is None or len(last.credential) != size or memcmp(<const unsigned char*>last.credential, credential, size) != 0 \
                or last.expires_at == 0:
            last = self.front.credentials.get(credential[:size])
            if last is not None and not last.may_come_by(self):
                last = None
            self.last = last
        if last is None or self.reactor.now > last.expires_at:
            return None
        if not self.is_trusted:
            self.trust()
        return last

    cdef double timeout_s(self) noexcept:
        """The time of the current call."""
        return self.front.call.timeout_ms / 1000.0 if self.front.call.timeout_ms > 0 else self.front.timeout_s

    cdef HotCall begin(self, double timeout_s):
        cdef HotCall call = self.call
        if call is None:
            call = self.call = HotCall()
            call.connection, call.front = self, self.front
        call.frame = None
        self.front.tell_topics(call)
        call.start(self.front.call.seqid, self.front.call.message_count, self.front.retry_after_ms, self.reactor.now, timeout_s)
        return call

    cdef int refuse(self, const unsigned char* frame) except -1:
        """Answer every message of the current call with front.refusal; no message was taken."""
        cdef Front front = self.front
        cdef HotCall call = self.begin(0)
        cdef _walk.Message* m
        cdef uint32_t i
        call.retry_after_ms = front.admission.retry_after_ms
        if front.refusal == CODE_RATE_LIMITED:
            self.retry_slot = front.admission.slot
        for i in range(front.call.message_count):
            m = &front.messages[i]
            call.set_id(i, frame + m.id_start, m.id_size if m.flags & _walk.HAS_ID else 0, False)
            call.result(i, front.refusal, 0, -1)
        return call.done()

    cdef int ask(self, Lanes lanes, const unsigned char* frame) except -1:
        cdef Front front = self.front
        cdef _walk.Message* m = &front.messages[0]
        cdef Destination destination = <Destination>front.chosen[0]
        cdef Lane lane = lanes.only
        cdef unsigned char id16[ASSIGNED_ID_SIZE]
        cdef uint32_t queue
        if lane is None:
            queue = front.queues[0]
            lane = lanes.home(destination, queue)
        else:
            queue = lane.choose_queue(destination, frame + m.key_start, m.key_size if m.flags & _walk.HAS_KEY else -1)
        self.retry_slot = None
        front.admission.commit(self.last.meter, 1, front.call_bytes)
        if destination.meter is not None:
            destination.meter.commit(front.admission.call)
        front.hot_calls += 1
        front.hot_messages += 1
        if m.flags & _walk.HAS_ID:
            self.request = front.request_calls.ask(self, self.last.application, lane, destination, queue, frame, &front.call, m, NULL)
        else:
            front.assign(id16, unix_ms())
            self.request = front.request_calls.ask(self, self.last.application, lane, destination, queue, frame, &front.call, m, id16)
        return 0

    cdef int reply(self, const unsigned char* frame) except -1:
        cdef Front front = self.front
        front.hot_calls += 1
        front.hot_messages += 1
        return front.request_calls.reply(self, self.last.reply_key, frame, &front.call, &front.messages[0], self.timeout_s())

    cdef int take(self, Lanes lanes, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef Front front = self.front
        cdef Lane lane = lanes.only
        cdef HotCall call
        cdef _walk.Message* m
        cdef Destination destination
        cdef unsigned char id16[ASSIGNED_ID_SIZE]
        cdef uint32_t i, queue
        cdef uint64_t now_ms = unix_ms()
        cdef bint checked = False, bound
        for i in range(front.call.message_count if lanes.only is None else 0):
            checked = checked or (front.messages[i].flags & _walk.HAS_ID and (<Destination>front.chosen[i]).id_window_ms)
        call = self.begin(patience_s(self.timeout_s(), front.switch_s) if front.is_buffered else self.timeout_s())
        if front.is_buffered or checked:       # a message may be diverted, or its id may be claimed for another queue
            call.frame = frame[:size]
        if lane is not None:
            lane.join(call)
        self.retry_slot = None
        front.admission.commit(self.last.meter, front.call.message_count, front.call_bytes)
        for i in range(front.call.message_count):
            m = &front.messages[i]
            destination = <Destination>front.chosen[i]
            if destination.meter is not None:
                destination.meter.commit(front.admission.call)
            bound = m.flags & _walk.HAS_KEY != 0
            if lanes.only is None:
                queue = front.queues[i]
                lane = lanes.home(destination, queue)
                lane.enter(call)
                bound = bound or (m.flags & _walk.HAS_ID != 0 and destination.id_window_ms != 0)
            else:
                queue = lane.choose_queue(destination, frame + m.key_start, m.key_size if m.flags & _walk.HAS_KEY else -1)
            if m.flags & _walk.HAS_ID:
                call.set_id(i, frame + m.id_start, m.id_size, False)
                lane.add(destination, queue, NULL, frame + m.start, m.size, NULL, bound, i)
            else:
                front.assign(id16, now_ms)
                call.set_id(i, id16, ASSIGNED_ID_SIZE, True)
                lane.add(destination, queue, id16, frame + m.start, m.size, NULL, bound, i)
            if destination.tap is not None and m.flags & _walk.HAS_KEY:
                lane.note_key(m.key_start - m.start, m.key_size)
        return 0


cdef inline Destination usable(Front front, AdmittedCredential admitted, const unsigned char* topic, uint32_t size):
    """The destination of a topic that the application may send to; None: unknown, not granted, or outdated."""
    cdef Destination destination = front.destinations.find(topic, size) if admitted.may_send(topic, size) else None
    if destination is None or (destination.checked_at != front.generation and not front.check(destination)):
        return None
    return destination


cdef inline bint is_rare(Front front, Destination destination, const _walk.Message* m) noexcept:
    """Whether a message without a fault needs the rare path: by its size, its topic, or the topic's buffer."""
    return m.body_size > destination.body_bytes_max or destination.is_special or (
        destination.buffered and (destination.diverted or front.diverting)
    )


cdef inline bint is_rare_dual(Destination destination, const _walk.SendCall* call, const unsigned char* frame,
                              const _walk.Message* m) noexcept:
    """Whether a message of a topic with two sides needs the rare path: until that has put a tap, and for what is refused."""
    return destination.tap is None or (<DualTap>destination.tap).is_closed or call.reply_wait_ms > 0 or (
        m.flags & _walk.HAS_PROPERTIES != 0 and may_be_reserved(frame, m)
    )


cdef inline bint is_assigned(const unsigned char* shown, uint32_t size) noexcept:
    """Whether an id of its sender's has the form of ids that proxies assign: common/ids.py. Reads shown[0..size)."""
    cdef uint32_t i
    if size != 2 * ASSIGNED_ID_SIZE or shown[12] != c"f" or shown[13] != c"f":
        return False
    for i in range(size):
        if not (c"0" <= shown[i] <= c"9" or c"a" <= shown[i] <= c"f"):
            return False
    return True


cdef inline bint choose_queue(Front front, Lanes lanes, Destination destination, const unsigned char* frame, uint32_t i,
                              CallTotals* totals) except -1:
    """Choose the queue of message i over several broker groups; False: no lane takes it."""
    cdef uint32_t queue
    if front.call.reply_wait_ms and front.messages[i].flags & _walk.HAS_ID and destination.id_window_ms:
        return False                  # a request under an id of its own asks the id's home first
    queue = lanes.choose_for(destination, frame, &front.messages[i])
    front.queues[i] = queue
    if queue == NO_QUEUE:
        return False
    totals.is_crowded = totals.is_crowded or not lanes.home(destination, queue).lets_in(front.call.message_count, destination.grade)
    return True


cdef inline int conclude(Front front, Lanes lanes, AdmittedCredential admitted, CallTotals* totals, slot) except -1:
    """Decide about a call whose messages are all acceptable.

    Criteria: room in the append, rate limits, and room in the queue for the grade.
    """
    cdef uint32_t count = front.call.message_count
    cdef int verdict
    if (totals.is_buffered and totals.is_unbuffered) or not lanes.take_all(totals.bytes + RECORD_MORE * count):
        return GO_SLOW                # messages of one call with different patience are rare
    front.call_bytes = totals.bytes
    verdict = front.admission.verdict(admitted.meter, count, totals.bytes, front.messages[0].size, slot)
    if lanes.only is not None:
        totals.is_crowded = not lanes.only.lets_in(count, totals.grade)
    if verdict == REFUSE:
        front.refusal = CODE_RATE_LIMITED
        return REFUSE_ALL
    if verdict != ADMIT:
        return GO_SLOW
    if totals.is_crowded:
        # In a call over several queues, other queues may still have room for some messages.
        if totals.is_mixed or totals.is_buffered or (lanes.only is None and count > 1):
            return GO_SLOW
        front.refusal, front.admission.retry_after_ms = CODE_OVERLOADED, front.retry_after_ms
        return REFUSE_ALL
    return ASK if front.call.reply_wait_ms else TAKE

# cython: language_level=3, boundscheck=False, wraparound=False
"""A lane: messages on their way to one broker.

While an append is in flight, new messages of all topics form the next one. A lane is one link per broker for the
durability classes that it serves, so an answer from memory never waits for a sync. Nothing here waits: results come to
a Waiter in the loop callback that read the broker's answer. The reference is lane.py.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from common.limits._queue_limit cimport QueueLimit
from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_LINK
from common.net._reactor cimport Reactor, TurnEnd, monotonic_s, reactor_of
from engine.client._append_request cimport MOVED, AppendItem, AppendRequest, AppendRun, Waiter
from engine.client._destination cimport Destination, queue_after, queue_of_key, topic_id_at
from engine.client._little cimport get32, put32
from engine.link.constants cimport (
    ASSIGNED_ID_SIZE, CODE_NOT_MASTER, CODE_OK, CODE_TIMEOUT, CODE_UNAVAILABLE, FRAME_REST_SIZE, RECORD_HAS_ID,
    RECORD_HAS_TRAILER, RECORD_HEAD_SIZE, REPLY_TOKEN_SIZE,
)

from common.net.limits import Limits

cdef enum:
    APPEND_END_SIZE = 8               # the log's end, after the results of an answer
    RESEND_HEAD_SIZE = 8              # the position, before the payload of an APPEND
    FRAME_BYTES_MAX = 24 << 20        # below the link's 32 MiB; what does not fit is refused as OVERLOADED
    SHARE_ALL = 16

cdef double SWITCH_S = 1.0            # as in lane.py
LINK_LIMITS = Limits(output_bytes_max=1 << 40)


cdef class Lane(TurnEnd):
    """One connection to one broker, for the durability classes that it serves.

    Args:
        row: of durability.LANES.
        group: the broker group's number.
    """

    def __init__(self, row, int group=0):
        self.number, self.durability, self.in_flight_max, self.group = row.number, row.durability, row.in_flight_max, group
        self.share, self.refusing, self.slowest_s = SHARE_ALL, False, -1
        self.filling, self.limit = AppendRequest(), QueueLimit()
        self.flying, self.spare = [], []
        self.append_number = 1
        self.link = None
        self.on_busy = self.on_down = self.rescue = None
        self.on_unknown_id = ignore_id

    def use(self, int fd, str peer, uint64_t end_position=0):
        """Send over this connected, authenticated socket from now on; owns it.

        What was sent over the link before and has no answer is sent again, before anything else.

        Args:
            end_position: of the log, as the broker's HELLO tells it; 0: not known.
        """
        cdef AppendRequest append
        self.link = AppendLink(fd, LINK_LIMITS, peer, PROTOCOL_LINK)
        (<AppendLink>self.link).lane = self
        self.waits = False
        self.linked_at = reactor_of().now
        self.limit.is_stalled = False  # the one that stalled is gone
        if end_position:
            self.end_position = end_position
            for append in self.flying:
                append.position = min(append.position, end_position)
        self.is_due_again = len(self.flying) > 0
        if self.is_due_again or self.filling.item_count:
            reactor_of().at_turn_end(self)

    def drop(self, str reason):
        """Close the connection, as when it broke."""
        if self.link is not None:
            self.link.close(reason)

    @property
    def idle(self):
        """Nothing is waiting for an answer or to be sent."""
        return not self.flying and self.filling.item_count == 0

    def rest(self, on_busy):
        """Have `on_busy()` called once, at the next message. False, and it is not: a message has no answer yet."""
        self.on_busy = None if self.flying or self.filling.waiters else on_busy
        return self.on_busy is not None

    @property
    def oldest_sent_at(self):
        """When the append that has waited longest for its answer was sent, in monotonic seconds; None: none waits."""
        return (<AppendRequest>self.flying[0]).sent_at if self.flying and self.link is not None else None

    @property
    def oldest_taken_at(self):
        """When the oldest message without an answer was taken, in monotonic seconds; None: there is none."""
        cdef AppendRequest oldest = self.flying[0] if self.flying else self.filling
        return oldest.started_at if oldest.item_count else None

    def take_slowest(self):
        """Seconds of the slowest answer since the last call; None: there was none."""
        cdef double slowest = self.slowest_s
        self.slowest_s = -1
        return slowest if slowest >= 0 else None

    def yield_unsent(self):
        """Offer unsent messages that may go elsewhere to `rescue`; the rest stays."""
        cdef AppendRequest old = self.filling
        cdef AppendRequest fresh
        cdef Waiter waiter
        cdef AppendRun* run
        cdef uint32_t r, i
        if old.item_count == 0 or self.rescue is None:
            return
        self.rescue(old, self.group)
        fresh = self.filling = AppendRequest()
        self.append_number += 1
        for r in range(old.run_count):
            run = &old.runs[r]
            i = run.head
            while i:
                if old.items[i - 1].waiter != MOVED:
                    waiter = <Waiter>old.waiters[old.items[i - 1].waiter]
                    self.enter(waiter)
                    # The destination may know the broker by a number that is void: see Brokers._greeted.
                    self.move(
                        old, &old.items[i - 1], <Destination>old.destinations[run.destination - 1], run.topic_id, run.queue, waiter
                    )
                    fresh.items[fresh.item_count - 1].bound = old.items[i - 1].bound
                    old.items[i - 1].waiter = MOVED
                i = old.items[i - 1].next
        fresh.started_at = old.started_at
        self.waiting -= old.item_count
        old.forget_moved()

    def yield_sent(self):
        """Offer sent messages that may go elsewhere to `rescue`.

        The broker may still store them, under the same ids.
        """
        cdef AppendRequest append
        for append in self.flying if self.rescue is not None else []:
            self.rescue(append, self.group)

    def expire(self, double now):
        """Answer TIMEOUT to every call whose deadline has passed; its messages may still be stored.

        To be called about every 20 ms.
        """
        cdef Waiter waiter
        cdef AppendRequest append
        cdef double oldest = now
        if not self.waits:
            if self.flying:
                oldest = max((<AppendRequest>self.flying[0]).started_at, self.linked_at)
            self.limit.look(oldest + SWITCH_S if self.keeps else oldest, now)
        for append in self.flying + [self.filling]:
            for waiter in append.waiters:
                if waiter is not None and now > waiter.deadline and not waiter.expired:
                    waiter.expired = True
                    waiter.expire()

    cdef bint is_up(self):
        return (self.link is not None or self.waits) and not self.refusing

    cdef bint admits(self):
        """Whether this lane takes the next run of messages that could go elsewhere."""
        if self.link is None or self.share == 0:
            return False
        self.turn = (self.turn + 1) % SHARE_ALL
        return self.turn < self.share

    cdef bint has_room(self, size_t bytes):
        return self.filling.frame_bytes + bytes <= FRAME_BYTES_MAX

    cdef bint lets_in(self, uint64_t asked, int grade) noexcept:
        """Whether `asked` more messages of a grade may wait here."""
        return self.limit.lets_in(self.waiting, asked, grade)

    cdef uint32_t choose_queue(self, Destination destination, const unsigned char* key, Py_ssize_t key_size) except? 0:
        """Queue of a message: by Kafka's hash of its key; without a key, one queue per append, in rotation."""
        cdef int lane = self.number
        cdef uint32_t number = <uint32_t>self.append_number
        if key_size >= 0:
            return queue_of_key(destination, key, key_size)
        if destination.sticky_append[lane] != number:
            destination.sticky_append[lane] = number
            destination.sticky_queue[lane] = destination.next_queue
            destination.next_queue = queue_after(destination, destination.next_queue)
        return destination.sticky_queue[lane]

    cdef int join(self, Waiter waiter) except -1:
        """Enter a call into the append, before its first add()."""
        cdef Reactor reactor = reactor_of()
        if not self.filling.waiters:
            self.filling.started_at = reactor.now if reactor.in_turn else monotonic_s()
            if self.on_busy is not None:
                on_busy, self.on_busy = self.on_busy, None
                on_busy()
        self.filling.waiters.append(waiter)
        waiter.waiting += 1
        reactor.at_turn_end(self)
        return 0

    cdef int enter(self, Waiter waiter) except -1:
        """Call join(), unless this call was the last to join."""
        cdef list waiters = self.filling.waiters
        if not waiters or waiters[len(waiters) - 1] is not waiter:
            self.join(waiter)
        return 0

    cdef int add(self, Destination destination, uint32_t queue, const unsigned char* id16, const unsigned char* message,
                 uint32_t size, const unsigned char* token, bint bound, uint32_t index) except -1:
        """Take one message of the waiter that joined last; its bytes are copied. The caller has asked has_room().

        A request, which has a reply token, is a run of its own; so is a message without an assigned id where ids are
        checked. What follows it in its queue comes after it. `bound`: it must not go to another broker, as its key has
        chosen the queue, or it has a token. The copies stay within `total`, for which place() has made room in the
        arena.
        """
        cdef uint32_t window_ms = destination.id_window_ms if id16 == NULL else 0
        cdef uint32_t head = RECORD_HEAD_SIZE + (ASSIGNED_ID_SIZE if id16 != NULL else 0)
        cdef uint32_t total = head + size + (REPLY_TOKEN_SIZE if token != NULL else 0)
        cdef AppendRequest append = self.filling
        cdef AppendItem* item = append.place(
            topic_id_at(destination, self.group), destination, queue, total, window_ms, window_ms != 0 or token != NULL
        )
        cdef unsigned char* record = append.arena + item.at
        self.waiting += 1
        item.index, item.bound = index, bound
        put32(record, total - 4)
        record[4] = (RECORD_HAS_ID if id16 != NULL else 0) | (RECORD_HAS_TRAILER if token != NULL else 0)
        if id16 != NULL:
            memcpy(record + RECORD_HEAD_SIZE, id16, ASSIGNED_ID_SIZE)
        memcpy(record + head, message, size)
        if token != NULL:
            memcpy(record + head + size, token, REPLY_TOKEN_SIZE)
        return 0

    cdef int note_key(self, uint32_t at, uint32_t size) except -1:
        """Tell the tap of the message that was added last where its key lies within the message."""
        cdef AppendItem* item = &self.filling.items[self.filling.item_count - 1]
        item.key_at, item.key_size = at, size
        return 0

    cdef int move(self, AppendRequest source, const AppendItem* item, Destination destination, uint32_t topic_id, uint32_t queue,
                  Waiter waiter) except -1:
        """Take a message over from another append, under the same id.

        The waiter has entered. Both arenas hold item.size bytes of it.
        """
        cdef int flags = source.arena[item.at + 4]
        cdef uint32_t window_ms = 0 if flags & RECORD_HAS_ID else destination.id_window_ms
        cdef AppendRequest append = self.filling
        cdef AppendItem* taken = append.place(
            topic_id, destination, queue, item.size, window_ms, window_ms != 0 or flags & RECORD_HAS_TRAILER
        )
        self.waiting += 1
        taken.index, taken.bound, taken.key_at, taken.key_size = item.index, item.bound, item.key_at, item.key_size
        memcpy(append.arena + taken.at, source.arena + item.at, item.size)
        return 0

    cdef int turn_end(self) except -1:
        if self.link is None:
            return 0
        if self.is_due_again:
            self.send_again()
        # An APPEND overtakes a RESEND at the broker, so it waits for its answer.
        if self.filling.item_count and len(self.flying) < self.in_flight_max and self.resending == 0:
            self.send()
        return 0

    cdef int send(self) except -1:
        """Encode the append straight into the connection's output, without what no call waits for; begin the next one."""
        cdef AppendRequest append = self.filling
        cdef AppendLink link = self.link
        cdef unsigned char* start
        if append.has_expired() and not append.drop_expired():
            self.filling = AppendRequest()
            self.append_number += 1
            self.waiting -= append.item_count
            return append.answer_all(CODE_TIMEOUT)
        if append.taps:
            append.tell_taps()
        start = link.out_reserve(append.frame_bytes)
        self.request_id += 1
        link.out_commit(append.encode(start, self.request_id, self.durability) - start)
        append.sent_at = monotonic_s()
        append.position = self.end_position
        self.appends += 1
        self.messages += append.item_count
        self.flying.append(append)
        self.filling = self.spare.pop() if self.spare else AppendRequest()
        self.append_number += 1
        return 0

    cdef int send_again(self) except -1:
        """Send the appends whose answers were lost, in their order, with the positions that they had at first.

        One that no call waits for any more is left out.
        """
        cdef AppendRequest append
        cdef AppendLink link = self.link
        cdef unsigned char* start
        self.is_due_again = False
        flying, self.flying = self.flying, []
        for append in flying:
            if not append.leave_out_expired_runs():
                self.waiting -= append.item_count
                append.answer_all(CODE_TIMEOUT)
                continue
            start = link.out_reserve(append.frame_bytes + RESEND_HEAD_SIZE)
            self.request_id += 1
            link.out_commit(append.encode_again(start, self.request_id, self.durability) - start)
            append.sent_at = monotonic_s()
            self.flying.append(append)
        self.resending = <uint32_t>len(self.flying)
        return 0

    cdef int answered(self, uint32_t request_id, int code, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef AppendRequest append
        if not self.flying or (<AppendRequest>self.flying[0]).request_id != request_id:
            self.drop("answers out of order")
            return 0
        if code == CODE_NOT_MASTER and self.keeps:
            self.drop("the broker does not lead")
            return 0
        append = self.flying.pop(0)
        self.resending -= 1 if self.resending else 0
        self.slowest_s = max(self.slowest_s, monotonic_s() - append.sent_at)
        if append.started_at >= self.linked_at:    # else the time of the switch would count as the broker's
            self.limit.sample(append.started_at, reactor_of().now, self.waiting)
        self.waiting -= append.item_count
        if code == CODE_OK:
            if size >= APPEND_END_SIZE:
                memcpy(&self.end_position, payload + size - APPEND_END_SIZE, APPEND_END_SIZE)
            append.answer(payload, size, self.on_unknown_id)
        else:
            append.answer_all(code)
        self.spare.append(append)
        reactor_of().at_turn_end(self)
        return 0

    cdef int lost(self) except -1:
        """Handle a broken connection: sent messages may be stored, unsent ones are not."""
        self.link = None
        self.resending, self.is_due_again = 0, False
        self.waits = self.keeps
        if not self.keeps:
            self.end_sent()
            self.refuse_unsent()
        if self.on_down is not None:
            self.on_down(self)
        return 0

    def end_sent(self):
        """Answer TIMEOUT for what was sent, or move it."""
        cdef AppendRequest append
        flying, self.flying = self.flying, []
        for append in flying:
            self.waiting -= append.item_count
            self.give_up(append, CODE_TIMEOUT)

    def refuse_unsent(self):
        """Answer UNAVAILABLE for what was not sent, or move it, and take nothing without a link."""
        cdef AppendRequest append
        append, self.filling = self.filling, AppendRequest()
        self.waits, self.limit.is_stalled = False, False
        self.append_number += 1
        self.waiting -= append.item_count
        self.give_up(append, CODE_UNAVAILABLE)

    cdef int give_up(self, AppendRequest append, int code) except -1:
        """Move the messages that may go elsewhere; answer the rest with this code."""
        if self.rescue is not None:
            self.rescue(append, self.group)
        return append.answer_all(code)


def ignore_id(topic_id):
    """Do nothing: until somebody keeps topic ids."""


cdef class AppendLink(Connection):
    """The lane's connection."""

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef uint16_t code
        if size < FRAME_REST_SIZE:              # all that is read below lies within the header
            return self.shut("a link frame without a header")
        memcpy(&code, frame + 2, 2)
        return self.lane.answered(get32(frame + 4), code, frame + FRAME_REST_SIZE, size - FRAME_REST_SIZE)

    cdef int on_closed(self) except -1:
        if self.lane.link is self:
            self.lane.lost()
        return 0

# cython: language_level=3, boundscheck=False, wraparound=False
"""Messages on their way to one broker: while an append is in flight, whatever comes forms the next one, across topics.

A lane is one link connection and one class of durability, so that an answer from memory never waits behind a sync. Nothing here waits:
results come to a Waiter in the loop callback that read the broker's answer. The bytes are those of docs/design/0001-seams.md, 4 and 5.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from common.limits._queue_limit cimport QueueLimit
from common.net._frames cimport PROTOCOL_LINK
from common.net._reactor cimport TurnEnd, monotonic_s, reactor_of
from common.wire._walk cimport murmur2
from engine.client._destination cimport Destination
from engine.client._little cimport get32, put32

from common.net.limits import Limits

cdef enum:
    BATCH_HEADER = 48
    FRAME_HEADER = 16
    APPEND_HEAD = 8
    MAGIC = 0x5042
    OP_APPEND = 10
    FRAME_BYTES_MAX = 24 << 20        # below the link's 32 MiB; what does not fit is refused as OVERLOADED
    CELLS_LEAST = 256
    CELLS_KEPT = 1 << 16              # 1 MiB: an append in hundreds of thousands of queues is rare
    FLAG_CHECK_IDS = 1
    CODE_DUPLICATE = 2
    CODE_UNAVAILABLE = 203
    CODE_TIMEOUT = 300
    SHARE_ALL = 16

LINK_LIMITS = Limits()


cdef class Waiter:
    """Whoever wants the results of messages: one call on behalf of one client."""

    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1:
        return 0

    cdef int done(self) except -1:
        return 0

    cdef int expire(self) except -1:
        return 0


cdef class Append:
    """What one append carries: runs of messages, and who waits for them. Reused, so its arrays are allocated once."""

    def __cinit__(self):
        self.waiters, self.destinations = [], []
        self.make_cells(CELLS_LEAST)
        self.clear()

    def __dealloc__(self):
        free(self.cells)
        free(self.items)
        free(self.runs)
        free(self.arena)

    cdef int clear(self) except -1:
        self.waiters.clear()
        self.destinations.clear()
        self.item_count = self.run_count = 0
        self.arena_used = 0
        self.frame_bytes = FRAME_HEADER + APPEND_HEAD
        self.stamp += 1                     # which empties all cells at once
        if self.stamp == 0 or self.cell_count > CELLS_KEPT:
            self.make_cells(CELLS_LEAST)
        if self.arena_cap > (4 << 20):
            free(self.arena)
            self.arena, self.arena_cap = NULL, 0
        return 0

    cdef Cell* cell(self, uint32_t topic_id, uint32_t queue) noexcept:
        """The cell of this queue's last run, or the empty one where it belongs."""
        cdef uint64_t key = (<uint64_t>topic_id << 32) | queue
        cdef uint32_t mask = self.cell_count - 1
        cdef uint32_t at = <uint32_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 32) & mask
        while self.cells[at].stamp == self.stamp and self.cells[at].key != key:
            at = (at + 1) & mask
        return &self.cells[at]

    cdef int make_cells(self, uint32_t count) except -1:
        """Another table, with the runs that there are."""
        cdef Cell* cells = <Cell*>calloc(count, sizeof(Cell))
        cdef Cell* cell
        cdef uint32_t r
        if cells == NULL:
            raise MemoryError()
        free(self.cells)
        self.cells, self.cell_count, self.stamp = cells, count, 1
        for r in range(self.run_count):
            cell = self.cell(self.runs[r].topic_id, self.runs[r].queue)
            cell.key, cell.run, cell.stamp = (<uint64_t>self.runs[r].topic_id << 32) | self.runs[r].queue, r, 1
        return 0

    cdef int add_run(self, uint32_t topic_id, uint32_t queue, uint32_t id_window_ms, bint alone, Destination destination) except -1:
        """An empty run, the queue's last one from now on."""
        cdef Cell* cell
        cdef Run* run
        if self.run_count == self.run_cap:
            self.run_cap = max(64, self.run_cap * 2)
            self.runs = <Run*>realloc_or_raise(self.runs, self.run_cap * sizeof(Run))
        if 2 * (self.run_count + 1) > self.cell_count:
            self.make_cells(2 * self.cell_count)
        cell = self.cell(topic_id, queue)
        cell.key, cell.run, cell.stamp = (<uint64_t>topic_id << 32) | queue, self.run_count, self.stamp
        run = &self.runs[self.run_count]
        run.topic_id, run.queue, run.count, run.bytes, run.head, run.destination = topic_id, queue, 0, 0, 0, 0
        run.id_window_ms, run.alone = id_window_ms, alone
        if destination.homes is not None:
            self.destinations.append(destination)
            run.destination = <uint32_t>len(self.destinations)
        self.run_count += 1
        self.frame_bytes += BATCH_HEADER + 8
        return 0

    cdef int answer_all(self, int code) except -1:
        """One code for every message."""
        cdef uint32_t r, i
        cdef Waiter waiter
        for r in range(self.run_count):
            i = self.runs[r].head
            while i:
                if self.items[i - 1].waiter != MOVED:
                    waiter = <Waiter>self.waiters[self.items[i - 1].waiter]
                    if not waiter.expired:
                        waiter.result(self.items[i - 1].index, code, self.runs[r].queue, -1)
                i = self.items[i - 1].next
        return self.finish()

    cdef int answer(self, const unsigned char* results, Py_ssize_t size) except -1:
        """Spread the broker's 16 bytes a batch over the messages."""
        cdef uint32_t r, i
        cdef uint16_t code
        cdef uint32_t queue
        cdef int64_t offset
        cdef Waiter waiter
        cdef Run* run
        if size != <Py_ssize_t>self.run_count * 16:
            return self.answer_all(CODE_TIMEOUT)
        for r in range(self.run_count):
            run = &self.runs[r]
            memcpy(&code, results + 16 * r, 2)
            memcpy(&offset, results + 16 * r + 8, 8)
            queue = get32(results + 16 * r + 4) if code == CODE_DUPLICATE else run.queue
            i = run.head
            while i:
                if self.items[i - 1].waiter != MOVED:
                    waiter = <Waiter>self.waiters[self.items[i - 1].waiter]
                    if not waiter.expired:
                        waiter.result(self.items[i - 1].index, code, queue, offset)
                offset += 1
                i = self.items[i - 1].next
        return self.finish()

    def finish(self):
        cdef Waiter waiter
        for waiter in self.waiters:
            if waiter is not None:
                waiter.waiting -= 1
                if waiter.waiting == 0 and not waiter.expired:
                    waiter.done()
        self.clear()
        return 0

    cdef int forget_moved(self) except -1:
        """Owe nothing to those waiters all of whose messages were moved."""
        cdef Waiter waiter
        cdef Py_ssize_t number
        cdef uint32_t i
        left = [0] * len(self.waiters)
        for i in range(self.item_count):
            if self.items[i].waiter != MOVED:
                left[self.items[i].waiter] += 1
        for number in range(len(left)):
            waiter = <Waiter>self.waiters[number]
            if waiter is not None and left[number] == 0:
                waiter.waiting -= 1
                self.waiters[number] = None
        return 0


cdef class Lane(TurnEnd):
    """One connection to one broker for one class of durability.

    Args:
        number: 0 MEMORY, 1 FSYNC.
        in_flight_max: appends that may be unanswered. More keeps a slow disk busy and costs nothing where answers are quick.
        group: the broker group's number.
    """

    def __init__(self, int number, int in_flight_max, int group=0):
        self.number, self.in_flight_max, self.group = number, in_flight_max, group
        self.share, self.refusing, self.slowest_s = SHARE_ALL, False, -1
        self.filling, self.limit = Append(), QueueLimit()
        self.flying, self.spare = [], []
        self.append_number = 1
        self.link = None
        self.on_down = self.rescue = None

    def use(self, int fd, str peer):
        """Send over this connected, authenticated socket from now on; owns it."""
        self.link = AppendLink(fd, LINK_LIMITS, peer, PROTOCOL_LINK)
        (<AppendLink>self.link).lane = self

    def drop(self, str reason):
        """Close the connection, as when it broke."""
        if self.link is not None:
            self.link.close(reason)

    @property
    def idle(self):
        """Nothing is waiting for an answer or to be sent."""
        return not self.flying and self.filling.item_count == 0

    @property
    def oldest_sent_at(self):
        """When the append was sent that has waited longest for its answer, in monotonic seconds; None: none waits."""
        return (<Append>self.flying[0]).sent_at if self.flying else None

    def take_slowest(self):
        """Seconds of the slowest answer since the last call; None: there was none."""
        cdef double slowest = self.slowest_s
        self.slowest_s = -1
        return slowest if slowest >= 0 else None

    def yield_unsent(self):
        """Let `rescue` take what has not been sent and may go elsewhere; the rest stays."""
        cdef Append old = self.filling
        cdef Append fresh
        cdef Waiter waiter
        cdef Run* run
        cdef uint32_t r, i
        if old.item_count == 0 or self.rescue is None:
            return
        self.rescue(old, self.group)
        fresh = self.filling = Append()
        self.append_number += 1
        for r in range(old.run_count):
            run = &old.runs[r]
            i = run.head
            while i:
                if old.items[i - 1].waiter != MOVED:
                    waiter = <Waiter>old.waiters[old.items[i - 1].waiter]
                    self.enter(waiter)
                    self.move(old, &old.items[i - 1], <Destination>old.destinations[run.destination - 1], run.queue, waiter)
                    fresh.items[fresh.item_count - 1].bound = old.items[i - 1].bound
                    old.items[i - 1].waiter = MOVED
                i = old.items[i - 1].next
        fresh.started_at = old.started_at
        self.waiting -= old.item_count
        old.forget_moved()

    def yield_sent(self):
        """Let `rescue` take what was sent and may go elsewhere: the broker may store it all the same, under the same ids."""
        cdef Append append
        for append in self.flying if self.rescue is not None else []:
            self.rescue(append, self.group)

    def expire(self, double now):
        """Answer TIMEOUT to every call whose deadline has passed; its messages may still be stored. To be called every 20 ms or so."""
        cdef Waiter waiter
        cdef Append append
        self.limit.look((<Append>self.flying[0]).started_at if self.flying else now, now)
        for append in self.flying + [self.filling]:
            for waiter in append.waiters:
                if waiter is not None and now > waiter.deadline and not waiter.expired:
                    waiter.expired = True
                    waiter.expire()

    cdef bint is_up(self):
        return self.link is not None and not self.refusing

    cdef bint admits(self):
        """Whether the next run of messages that could go elsewhere as well is to come here."""
        if self.link is None or self.share == 0:
            return False
        self.turn = (self.turn + 1) % SHARE_ALL
        return self.turn < self.share

    cdef bint has_room(self, size_t bytes):
        return self.filling.frame_bytes + bytes <= FRAME_BYTES_MAX

    cdef bint lets_in(self, uint64_t asked, int grade) noexcept:
        """Whether so many more messages of a grade may wait here."""
        return self.limit.lets_in(self.waiting, asked, grade)

    cdef uint32_t choose_queue(self, Destination destination, const unsigned char* key, Py_ssize_t key_size) except? 0:
        """A key's own queue, by Kafka's hash; without a key one queue of the topic for the whole append, the next for the next."""
        cdef int lane = self.number
        cdef uint32_t number = <uint32_t>self.append_number
        if key_size >= 0:
            return (murmur2(key, key_size) & 0x7FFFFFFF) % destination.queues
        if destination.sticky_append[lane] != number:
            destination.sticky_append[lane] = number
            destination.sticky_queue[lane] = destination.next_queue
            destination.next_queue = (destination.next_queue + 1) % destination.queues
        return destination.sticky_queue[lane]

    cdef int join(self, Waiter waiter) except -1:
        """Before the first add() of a call."""
        if not self.filling.waiters:
            self.filling.started_at = reactor_of().now
        self.filling.waiters.append(waiter)
        waiter.waiting += 1
        reactor_of().at_turn_end(self)
        return 0

    cdef int enter(self, Waiter waiter) except -1:
        """join(), unless this call was the last to join."""
        cdef list waiters = self.filling.waiters
        if not waiters or waiters[len(waiters) - 1] is not waiter:
            self.join(waiter)
        return 0

    cdef int add(self, Destination destination, uint32_t queue, const unsigned char* id16, const unsigned char* message,
                 uint32_t size, const unsigned char* token, bint bound, uint32_t index) except -1:
        """Take one message of the waiter that joined last; its bytes are copied. The caller has asked has_room().

        A request, which has a reply token, is a run of its own, and where ids are checked one without an assigned id. What follows it in
        its queue comes behind it. `bound`: it must not go to another broker, as its key has chosen the queue, or it has a token.
        """
        cdef uint32_t window_ms = destination.id_window_ms if id16 == NULL else 0, head = 21 if id16 != NULL else 5
        cdef uint32_t total = head + size + (REPLY_TOKEN_SIZE if token != NULL else 0)
        cdef Item* item = self.place(destination, queue, total, window_ms, window_ms != 0 or token != NULL)
        cdef unsigned char* record = self.filling.arena + item.at
        item.index, item.bound = index, bound
        put32(record, total - 4)
        record[4] = (RECORD_HAS_ID if id16 != NULL else 0) | (RECORD_HAS_TRAILER if token != NULL else 0)
        if id16 != NULL:
            memcpy(record + 5, id16, 16)
        memcpy(record + head, message, size)
        if token != NULL:
            memcpy(record + head + size, token, REPLY_TOKEN_SIZE)
        return 0

    cdef int move(self, Append source, const Item* item, Destination destination, uint32_t queue, Waiter waiter) except -1:
        """Take a message over from another append, id and all. The waiter has entered."""
        cdef int flags = source.arena[item.at + 4]
        cdef uint32_t window_ms = 0 if flags & RECORD_HAS_ID else destination.id_window_ms
        cdef Item* taken = self.place(destination, queue, item.size, window_ms, window_ms != 0 or flags & RECORD_HAS_TRAILER)
        taken.index, taken.bound = item.index, item.bound
        memcpy(self.filling.arena + taken.at, source.arena + item.at, item.size)
        return 0

    cdef Item* place(self, Destination destination, uint32_t queue, uint32_t size, uint32_t id_window_ms, bint alone) except NULL:
        """Room in the arena for a record of the waiter that joined last, linked to the queue's run."""
        cdef Append append = self.filling
        cdef uint32_t topic_id = destination.topic_id
        cdef size_t at = append.arena_used
        cdef Cell* cell
        cdef Run* run
        cdef Item* item
        if destination.ids is not None:
            topic_id = (<const uint32_t*><const char*>destination.ids)[self.group]
        if append.item_count == append.item_cap:
            append.item_cap = max(256, append.item_cap * 2)
            append.items = <Item*>realloc_or_raise(append.items, append.item_cap * sizeof(Item))
        if at + size > append.arena_cap:
            append.arena_cap = max(65536, append.arena_cap * 2, at + size)
            append.arena = <unsigned char*>realloc_or_raise(append.arena, append.arena_cap)
        append.arena_used = at + size
        item = &append.items[append.item_count]
        append.item_count += 1
        item.next, item.waiter = 0, <uint32_t>(len(append.waiters) - 1)
        item.at, item.size = at, size
        cell = append.cell(topic_id, queue)
        if cell.stamp == append.stamp and not alone and not append.runs[cell.run].alone:
            run = &append.runs[cell.run]
            append.items[run.tail - 1].next = append.item_count
        else:
            append.add_run(topic_id, queue, id_window_ms, alone, destination)
            run = &append.runs[append.run_count - 1]
            run.head = append.item_count
        run.tail = append.item_count
        run.count += 1
        run.bytes += size
        self.waiting += 1
        append.frame_bytes += size
        return item

    cdef int turn_end(self) except -1:
        if self.filling.item_count and self.link is not None and len(self.flying) < self.in_flight_max:
            self.send()
        return 0

    cdef int send(self) except -1:
        """Lay the runs out as batches in their final form, straight into the connection's output."""
        cdef Append append = self.filling
        cdef AppendLink link = self.link
        cdef unsigned char* start = link.out_reserve(append.frame_bytes)
        cdef unsigned char* out = start + FRAME_HEADER + APPEND_HEAD
        cdef unsigned char* head
        cdef uint32_t r, i, pad
        cdef Run* run
        for r in range(append.run_count):
            run = &append.runs[r]
            head = out
            memset(head, 0, BATCH_HEADER)
            put32(head + 4, <uint32_t>(BATCH_HEADER + run.bytes))
            head[8], head[9] = MAGIC & 255, MAGIC >> 8
            put32(head + 16, run.topic_id)
            put32(head + 20, run.queue)
            put32(head + 24, run.count)
            if run.id_window_ms:
                head[11] = FLAG_CHECK_IDS
                put32(head + 28, run.id_window_ms)
            out += BATCH_HEADER
            i = run.head
            while i:
                memcpy(out, append.arena + append.items[i - 1].at, append.items[i - 1].size)
                out += append.items[i - 1].size
                i = append.items[i - 1].next
            pad = <uint32_t>((8 - (out - head) % 8) % 8)
            memset(out, 0, pad)
            out += pad
        self.request_id += 1
        append.request_id = self.request_id
        memset(start, 0, FRAME_HEADER + APPEND_HEAD)
        put32(start, <uint32_t>(out - start - 4))
        start[4] = OP_APPEND
        put32(start + 8, self.request_id)
        start[FRAME_HEADER] = self.number + 1
        put32(start + FRAME_HEADER + 4, append.run_count)
        link.out_commit(out - start)
        append.sent_at = monotonic_s()
        self.appends += 1
        self.messages += append.item_count
        self.flying.append(append)
        self.filling = self.spare.pop() if self.spare else Append()
        self.append_number += 1
        return 0

    cdef int answered(self, uint32_t request_id, int code, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef Append append
        if not self.flying or (<Append>self.flying[0]).request_id != request_id:
            self.drop("answers out of order")
            return 0
        append = self.flying.pop(0)
        self.slowest_s = max(self.slowest_s, monotonic_s() - append.sent_at)
        self.limit.sample(append.started_at, reactor_of().now, self.waiting)
        self.waiting -= append.item_count
        if code == 0:
            append.answer(payload, size)
        else:
            append.answer_all(code)
        self.spare.append(append)
        reactor_of().at_turn_end(self)
        return 0

    cdef int lost(self) except -1:
        """The connection broke: what was sent may be stored, what was not is not."""
        cdef Append append
        self.link = None
        flying, self.flying = self.flying, []
        for append in flying:
            self.give_up(append, CODE_TIMEOUT)
        append, self.filling = self.filling, Append()
        self.waiting, self.limit.is_stalled = 0, False
        self.append_number += 1
        self.give_up(append, CODE_UNAVAILABLE)
        if self.on_down is not None:
            self.on_down(self)
        return 0

    cdef int give_up(self, Append append, int code) except -1:
        """What may go elsewhere does; the rest has this code."""
        if self.rescue is not None:
            self.rescue(append, self.group)
        return append.answer_all(code)


cdef void* realloc_or_raise(void* old, size_t size) except NULL:
    cdef void* grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError()
    return grown


cdef class AppendLink(Connection):
    """The lane's connection."""

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef uint16_t code
        if size < FRAME_HEADER - 4:
            return self.shut("a link frame without a header")
        memcpy(&code, frame + 2, 2)
        return self.lane.answered(get32(frame + 4), code, frame + FRAME_HEADER - 4, size - (FRAME_HEADER - 4))

    cdef int on_closed(self) except -1:
        if self.lane.link is self:
            self.lane.lost()
        return 0

# cython: language_level=3, boundscheck=False, wraparound=False
"""One append request: its messages, as runs of queues, and the calls that wait for them.

Nothing here waits: results come to a Waiter in the loop callback that read the broker's answer. The bytes are those of
docs/design/0001-seams.md, sections 4 and 5. The reference is append_request.py.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from engine.client._destination cimport Destination
from engine.client._little cimport get32, put32
from engine.link.constants cimport (
    APPEND_HEAD_SIZE, APPEND_RESULT_SIZE, BATCH_CHECK_IDS, BATCH_HEADER_SIZE, BATCH_MAGIC, CODE_CLAIMED, CODE_DUPLICATE, CODE_TIMEOUT,
    CODE_UNAVAILABLE, CODE_UNKNOWN_TOPIC, FRAME_HEADER_SIZE, OP_APPEND, OP_RESEND,
)

cdef enum:
    CELLS_LEAST = 256
    CELLS_KEPT = 1 << 16              # 1 MiB: an append in hundreds of thousands of queues is rare
    ARENA_KEPT = 4 << 20
    PADDING_MAX = 8                   # after a batch
    APPEND_END_SIZE = 8               # the log's end, after the results of an answer
    RESEND_HEAD_SIZE = 8              # the position, before the payload of an APPEND


cdef class Waiter:
    """A call that waits for the results of its messages, on behalf of one client."""

    cdef int result(self, uint32_t index, int code, uint32_t queue, int64_t offset) except -1:
        return 0

    cdef int done(self) except -1:
        return 0

    cdef int expire(self) except -1:
        return 0


cdef class AppendTap:
    """Gets to know the messages of some topics on their way to the broker; see `Destination.tap`. Neither method may raise."""

    cdef object sending(self, AppendRequest append):
        """Called before the append is sent for the first time. What it returns is given to `answered`."""
        return None

    cdef int answered(self, AppendRequest append, object state) except -1:
        """Called once the outcomes of an append that was sent are known, after its calls have got theirs.

        The append's items, arena and outcomes are valid until this returns.
        """
        return 0


cdef class AppendRequest:
    """One append, while it is filled and until it is answered. Reused, so its arrays are allocated once."""

    def __cinit__(self):
        self.waiters, self.destinations, self.taps, self.tap_states = [], [], [], []
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
        self.taps.clear()
        self.tap_states.clear()
        self.item_count = self.run_count = 0
        self.arena_used = 0
        self.frame_bytes = FRAME_HEADER_SIZE + APPEND_HEAD_SIZE
        self.stamp += 1                     # invalidates all cells at once
        if self.stamp == 0 or self.cell_count > CELLS_KEPT:
            self.make_cells(CELLS_LEAST)
        if self.arena_cap > ARENA_KEPT:
            free(self.arena)
            self.arena, self.arena_cap = NULL, 0
        return 0

    cdef Cell* cell(self, uint32_t topic_id, uint32_t queue) noexcept:
        """The cell of this queue's last run, or the empty one where it belongs.

        The search ends within the table: at most half of its cells are filled, and the mask keeps the index below
        cell_count.
        """
        cdef uint64_t key = (<uint64_t>topic_id << 32) | queue
        cdef uint32_t mask = self.cell_count - 1
        cdef uint32_t at = <uint32_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 32) & mask
        while self.cells[at].stamp == self.stamp and self.cells[at].key != key:
            at = (at + 1) & mask
        return &self.cells[at]

    cdef int make_cells(self, uint32_t count) except -1:
        """Replace the table by one of `count` cells, and enter the runs."""
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
        """Add an empty run, which is the queue's last one from now on."""
        cdef Cell* cell
        cdef AppendRun* run
        if self.run_count == self.run_cap:
            self.runs = <AppendRun*>realloc_or_raise(self.runs, max(64, self.run_cap * 2) * sizeof(AppendRun))
            self.run_cap = max(64, self.run_cap * 2)
        if 2 * (self.run_count + 1) > self.cell_count:
            self.make_cells(2 * self.cell_count)
        cell = self.cell(topic_id, queue)
        cell.key, cell.run, cell.stamp = (<uint64_t>topic_id << 32) | queue, self.run_count, self.stamp
        run = &self.runs[self.run_count]
        run.topic_id, run.queue, run.count, run.bytes, run.head, run.destination = topic_id, queue, 0, 0, 0, 0
        run.id_window_ms, run.alone, run.left_out, run.tap = id_window_ms, alone, False, <void*>destination.tap
        if destination.tap is not None and destination.tap not in self.taps:
            self.taps.append(destination.tap)
        if destination.homes is not None or destination.tap is not None:
            self.destinations.append(destination)
            run.destination = <uint32_t>len(self.destinations)
        self.run_count += 1
        self.frame_bytes += BATCH_HEADER_SIZE + PADDING_MAX
        return 0

    cdef AppendItem* place(self, uint32_t topic_id, Destination destination, uint32_t queue, uint32_t size, uint32_t id_window_ms,
                           bint alone) except NULL:
        """Reserve room in the arena for a record of the waiter that joined last, and link it to the queue's run."""
        cdef size_t at = self.arena_used
        cdef Cell* cell
        cdef AppendRun* run
        cdef AppendItem* item
        if self.item_count == self.item_cap:
            self.items = <AppendItem*>realloc_or_raise(self.items, max(256, self.item_cap * 2) * sizeof(AppendItem))
            self.item_cap = max(256, self.item_cap * 2)
        if at + size > self.arena_cap:
            self.arena = <unsigned char*>realloc_or_raise(self.arena, max(65536, self.arena_cap * 2, at + size))
            self.arena_cap = max(65536, self.arena_cap * 2, at + size)
        self.arena_used = at + size
        item = &self.items[self.item_count]
        self.item_count += 1
        item.next, item.waiter = 0, <uint32_t>(len(self.waiters) - 1)
        item.at, item.size = at, size
        item.key_at, item.key_size = 0, NO_KEY
        cell = self.cell(topic_id, queue)
        if cell.stamp == self.stamp and not alone and not self.runs[cell.run].alone and self.runs[cell.run].tap == <void*>destination.tap:
            run = &self.runs[cell.run]
            self.items[run.tail - 1].next = self.item_count
        else:
            self.add_run(topic_id, queue, id_window_ms, alone, destination)
            run = &self.runs[self.run_count - 1]
            run.head = self.item_count
        run.tail = self.item_count
        run.count += 1
        run.bytes += size
        self.frame_bytes += size
        return item

    cdef unsigned char* encode(self, unsigned char* start, uint32_t request_id, int durability) noexcept:
        """Write the frame to `start`, where `frame_bytes` are free: head, then the runs as batches in their final form.

        Returns its end.
        """
        cdef uint32_t count = 0
        cdef unsigned char* out = start + FRAME_HEADER_SIZE + APPEND_HEAD_SIZE
        cdef unsigned char* head
        cdef uint32_t r, i, pad
        cdef AppendRun* run
        for r in range(self.run_count):
            run = &self.runs[r]
            if run.left_out:
                continue
            count += 1
            head = out
            memset(head, 0, BATCH_HEADER_SIZE)
            put32(head + 4, <uint32_t>(BATCH_HEADER_SIZE + run.bytes))
            head[8], head[9] = BATCH_MAGIC & 255, BATCH_MAGIC >> 8
            put32(head + 16, run.topic_id)
            put32(head + 20, run.queue)
            put32(head + 24, run.count)
            if run.id_window_ms:
                head[11] = BATCH_CHECK_IDS
                put32(head + 28, run.id_window_ms)
            out += BATCH_HEADER_SIZE
            i = run.head
            while i:
                memcpy(out, self.arena + self.items[i - 1].at, self.items[i - 1].size)
                out += self.items[i - 1].size
                i = self.items[i - 1].next
            pad = <uint32_t>((8 - (out - head) % 8) % 8)
            memset(out, 0, pad)
            out += pad
        memset(start, 0, FRAME_HEADER_SIZE + APPEND_HEAD_SIZE)
        put32(start, <uint32_t>(out - start - 4))
        start[4] = OP_APPEND
        put32(start + 8, request_id)
        start[FRAME_HEADER_SIZE] = durability
        put32(start + FRAME_HEADER_SIZE + 4, count)
        self.request_id = request_id
        return out

    cdef unsigned char* encode_again(self, unsigned char* start, uint32_t request_id, int durability) noexcept:
        """Write the same append as a RESEND to `start`, where `frame_bytes` and RESEND_HEAD_SIZE are free.

        Returns its end.
        """
        # The header is moved to the front; the position takes the place between it and the APPEND's payload.
        cdef unsigned char* end = self.encode(start + RESEND_HEAD_SIZE, request_id, durability)
        memset(start, 0, FRAME_HEADER_SIZE)
        put32(start, <uint32_t>(end - start - 4))
        start[4] = OP_RESEND
        put32(start + 8, request_id)
        memcpy(start + FRAME_HEADER_SIZE, &self.position, RESEND_HEAD_SIZE)
        return end

    cdef int tell_taps(self) except -1:
        """Let each tap see the append, before it is sent."""
        cdef AppendTap tap
        for tap in self.taps:
            self.tap_states.append(tap.sending(self))
        return 0

    cdef bint has_expired(self):
        """Whether a call of it waits no longer."""
        cdef Waiter waiter
        for waiter in self.waiters:
            if waiter is not None and waiter.expired:
                return True
        return False

    cdef bint drop_expired(self) except -1:
        """Drop the messages that no call waits for, before it is sent for the first time; returns whether any is left.

        Nothing is added any more. A tap is told of each message once, so its runs stay whole.
        """
        cdef bint is_any_left = False
        cdef AppendRun* run
        cdef uint32_t r, i, last
        for r in range(self.run_count):
            run = &self.runs[r]
            i, last = run.head, 0
            while i:
                if run.tap == <void*>None and self.items[i - 1].waiter != MOVED and (<Waiter>self.waiters[self.items[i - 1].waiter]).expired:
                    if last:
                        self.items[last - 1].next = self.items[i - 1].next
                    else:
                        run.head = self.items[i - 1].next
                    self.items[i - 1].waiter = MOVED
                    run.count -= 1
                    run.bytes -= self.items[i - 1].size
                else:
                    last = i
                i = self.items[i - 1].next
            run.tail, run.left_out = last, run.count == 0
            is_any_left = is_any_left or run.count > 0
        return is_any_left

    cdef bint leave_out_expired_runs(self) except -1:
        """See the reference."""
        cdef bint is_any_left = False
        cdef uint32_t r, i
        for r in range(self.run_count):
            self.runs[r].left_out = True
            i = self.runs[r].head         # 0: it was not sent at first
            while i and self.runs[r].left_out:
                if self.items[i - 1].waiter != MOVED and not (<Waiter>self.waiters[self.items[i - 1].waiter]).expired:
                    self.runs[r].left_out, is_any_left = False, True
                i = self.items[i - 1].next
        return is_any_left

    cdef int answer_all(self, int code) except -1:
        """Report one code for every message."""
        cdef uint32_t r, i
        cdef Waiter waiter
        for r in range(self.run_count):
            self.runs[r].code, self.runs[r].told_queue, self.runs[r].told_offset = code, self.runs[r].queue, -1
            i = self.runs[r].head
            while i:
                if self.items[i - 1].waiter != MOVED:
                    waiter = <Waiter>self.waiters[self.items[i - 1].waiter]
                    if not waiter.expired:
                        waiter.result(self.items[i - 1].index, code, self.runs[r].queue, -1)
                i = self.items[i - 1].next
        return self.finish()

    cdef int answer(self, const unsigned char* results, Py_ssize_t size, object on_unknown_id) except -1:
        """Spread the broker's results, one per batch, over the messages; the log's end follows them.

        The size is checked first: the loop reads no byte beyond it. Args: on_unknown_id: see the reference.
        """
        cdef uint32_t r, i, count = 0
        cdef uint16_t code
        cdef uint32_t queue
        cdef int64_t offset
        cdef Waiter waiter
        cdef AppendRun* run
        for r in range(self.run_count):
            count += not self.runs[r].left_out
        if size != <Py_ssize_t>count * APPEND_RESULT_SIZE + APPEND_END_SIZE:
            return self.answer_all(CODE_TIMEOUT)
        for r in range(self.run_count):
            run = &self.runs[r]
            if run.left_out:              # no call waits for it; a tap is told that it may be stored
                run.code, run.told_queue, run.told_offset = CODE_TIMEOUT, run.queue, -1
                continue
            memcpy(&code, results, 2)
            memcpy(&offset, results + 8, 8)
            queue = get32(results + 4) if code in (CODE_DUPLICATE, CODE_CLAIMED) else run.queue
            results += APPEND_RESULT_SIZE
            if code == CODE_UNKNOWN_TOPIC:
                on_unknown_id(run.topic_id)
                code = CODE_UNAVAILABLE
            run.code, run.told_queue, run.told_offset = code, queue, offset
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
        cdef Py_ssize_t number
        for waiter in self.waiters:
            if waiter is not None:
                waiter.waiting -= 1
                if waiter.waiting == 0 and not waiter.expired:
                    waiter.done()
        for number in range(len(self.tap_states)):
            (<AppendTap>self.taps[number]).answered(self, self.tap_states[number])
        self.clear()
        return 0

    cdef int forget_moved(self) except -1:
        """Release the waiters whose messages were all moved to other appends."""
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


cdef void* realloc_or_raise(void* old, size_t size) except NULL:
    cdef void* grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError()
    return grown

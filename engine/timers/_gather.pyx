# cython: language_level=3, boundscheck=False, wraparound=False
"""Gathers due timers into batches of their queues. Reference: gather.py.

The records are copied once, one after the other, as they are read; the batches are laid out from these copies. Timers
that were stored in sequence are often due in sequence: when a record follows the one before, a large window is read at
once.

Bounds: `window` has `window_room` bytes, of which `window_size` were read from file address `window_at` on; has()
checks each access against them. `copies` has `room` bytes, of which `copied` are used. `taken` and `groups` have one
entry per timer of the step.
"""
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from engine.log.segment._index cimport BatchHeader, crc32c_extend
from engine.link.constants cimport BATCH_CHECK_IDS, BATCH_HEADER_SIZE, BATCH_MAGIC, KIND_FIRED, RECORD_HEAD_SIZE
from engine.link.loads cimport load32, store32
from engine.timers._timer_head cimport TIMER_HEAD_SIZE, TimerHead

from engine.errors import CorruptionError
from engine.link.timer import parse
from engine.timers.gather import Gathered, KeyQueues
from engine.timers.record import EXHAUSTED

cdef extern from "unistd.h" nogil:
    ssize_t pread(int fd, void* buffer, size_t size, int64_t at)

cdef enum:
    GUESS = 1024                 # first read of a record of unknown size
    WINDOW = 65536               # read when one record follows another
    ROOM = 1 << 20

cdef uint32_t ANY_QUEUE = 0xFFFFFFFF
cdef uint64_t NO_BASE = 0xFFFFFFFFFFFFFFFF


cdef enum Found:
    READ
    DAMAGED
    UNREAD


cdef struct Taken:
    size_t at                    # of its record in `copies`, where its size precedes it
    uint32_t size
    uint32_t number
    uint32_t group


cdef struct QueueGroup:
    uint32_t topic_id
    uint32_t queue
    uint32_t window_ms
    uint32_t count
    size_t size
    size_t at                    # address of its next record


def gather(log, list entries, size_t bytes_max, uint64_t turn):
    """Read due timers and lay out their batches; see the reference."""
    cdef Gathering work = Gathering(log, len(entries), turn)
    cdef size_t taken = len(entries)
    cdef uint32_t number = 0
    cdef Found found
    damaged, unread = [], []
    for base, at, _, _ in entries:
        found = work.read(base, at)
        if found == READ and work.count and work.size + work.record_size > bytes_max:
            taken = number
            break
        if found == READ and not work.copy_record(number):
            found = DAMAGED
        if found == DAMAGED:
            damaged.append(number)
        elif found == UNREAD:
            unread.append(number)
        number += 1
    return Gathered(taken, work.batches(), work.groups_of_numbers(), work.looping, damaged, unread, work.size)


cdef class Gathering:
    """One step: from records in segments to batches."""

    cdef object log, keys
    cdef uint64_t turn
    cdef Taken* taken
    cdef QueueGroup* groups
    cdef uint32_t count, group_count
    cdef dict numbers            # topic id << 32 | queue -> number of its group
    cdef dict looping
    cdef uint8_t* copies
    cdef size_t copied, room, size
    # The last read
    cdef object file
    cdef uint64_t base
    cdef int fd
    cdef uint8_t* window
    cdef size_t window_room, window_size
    cdef uint64_t window_at, record_end
    cdef const uint8_t* record   # the size field of the log's record around it
    cdef uint32_t record_size    # of the message's record: flags, id and message

    def __cinit__(self, log, size_t count, uint64_t turn):
        self.log, self.turn, self.fd, self.keys = log, turn, -1, KeyQueues(log)
        self.numbers, self.looping = {}, {}
        self.base = NO_BASE
        self.taken = <Taken*>malloc((count + 1) * sizeof(Taken))
        self.groups = <QueueGroup*>malloc((count + 1) * sizeof(QueueGroup))
        self.room, self.window_room = ROOM, WINDOW
        self.copies = <uint8_t*>malloc(self.room)
        self.window = <uint8_t*>malloc(self.window_room)
        if self.taken == NULL or self.groups == NULL or self.copies == NULL or self.window == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.taken)
        free(self.groups)
        free(self.copies)
        free(self.window)

    cdef Found read(self, uint64_t base, uint64_t at) except *:
        """Read a timer's record into the window and verify it."""
        cdef uint64_t end
        cdef uint32_t whole
        cdef TimerHead* head
        if base != self.base:
            # Until the segment is open no base is the last one, so that the next timer of it tries again.
            self.base, self.window_size, self.record_end = NO_BASE, 0, 0
            try:
                self.file = self.log.file_of(base)
            except (OSError, CorruptionError) as error:
                if getattr(error, "errno", None) in EXHAUSTED:
                    raise
                return UNREAD
            self.base = base
            self.fd = -1 if self.file is None else self.file.fileno()
        if self.file is None:
            return DAMAGED
        if not self.has(at, 4) and not self.fill(at, WINDOW if at == self.record_end else GUESS):
            return UNREAD
        if not self.has(at, 4):
            return DAMAGED
        whole = load32(self.window + (at - self.window_at))
        end = at + 4 + <uint64_t>whole
        if whole < RECORD_HEAD_SIZE - 4 + TIMER_HEAD_SIZE + 2:
            return DAMAGED
        if not self.has(at, end - at) and not self.fill(at, end - at):
            return UNREAD
        if not self.has(at, end - at):
            return DAMAGED
        self.record = self.window + (at - self.window_at)
        head = <TimerHead*>(self.record + RECORD_HEAD_SIZE)
        if crc32c_extend(0, <const char*>head + 4, whole - (RECORD_HEAD_SIZE - 4) - 4) != head.crc:
            return DAMAGED
        self.record_size = whole - (RECORD_HEAD_SIZE - 4) - TIMER_HEAD_SIZE
        self.record_end = end
        if self.record[RECORD_HEAD_SIZE + TIMER_HEAD_SIZE] > 1 or <uint64_t>head.id_at + head.id_size > self.record_size:
            return DAMAGED
        return READ

    cdef bint has(self, uint64_t at, uint64_t size) noexcept:
        return at >= self.window_at and at + size <= self.window_at + self.window_size

    cdef bint fill(self, uint64_t at, size_t size) except *:
        """Read `size` bytes at `at` into the window, or up to the end of the file; False on an error of the disk."""
        cdef ssize_t got
        cdef uint8_t* grown
        if size > self.window_room:
            grown = <uint8_t*>realloc(self.window, size)
            if grown == NULL:
                raise MemoryError()
            self.window, self.window_room = grown, size
        self.window_at, self.window_size = at, 0
        if self.fd < 0:
            try:
                data = self.file.read_at(size, at)
            except OSError:
                return False
            memcpy(self.window, PyBytes_AS_STRING(data), len(data))
            self.window_size = len(data)
            return True
        while True:
            got = pread(self.fd, self.window, size, at)
            if got >= 0:
                self.window_size = got
                return True
            if errno != EINTR:
                return False

    cdef bint copy_record(self, uint32_t number) except *:
        """Copy the record that was read last; False when its topic is unknown."""
        cdef TimerHead* head = <TimerHead*>(self.record + RECORD_HEAD_SIZE)
        cdef size_t needed = self.copied + 4 + self.record_size
        cdef uint64_t queues = self.log.queue_count(head.topic_id)
        cdef uint32_t queue = head.queue
        cdef uint8_t* grown
        cdef const char* body
        cdef Taken* taken = &self.taken[self.count]
        cdef QueueGroup* group
        if not queues:
            return False
        if queue == ANY_QUEUE:
            queue = <uint32_t>(self.turn % queues)
        elif self.keys.has_grown(head.topic_id):
            body = <const char*>self.record + RECORD_HEAD_SIZE + TIMER_HEAD_SIZE
            queue = self.keys.now(head.topic_id, queue, PyBytes_FromStringAndSize(body, self.record_size))
        if needed > self.room:
            grown = <uint8_t*>realloc(self.copies, 2 * needed)
            if grown == NULL:
                raise MemoryError()
            self.copies, self.room = grown, 2 * needed
        taken.at, taken.size, taken.number = self.copied, 4 + self.record_size, number
        store32(self.copies + self.copied, self.record_size)
        memcpy(self.copies + self.copied + 4, self.record + RECORD_HEAD_SIZE + TIMER_HEAD_SIZE, self.record_size)
        self.copied = needed
        self.size += self.record_size
        taken.group = self.group_of(head.topic_id, queue, head.id_window_ms)
        group = &self.groups[taken.group]
        group.count += 1
        group.size += taken.size
        self.count += 1
        if head.gap_ms and head.times:
            whole = PyBytes_FromStringAndSize(<const char*>self.record, 4 + load32(self.record))
            self.looping[number] = parse(whole)
        return True

    cdef uint32_t group_of(self, uint32_t topic_id, uint32_t queue, uint32_t window_ms) except? 0xFFFFFFFF:
        cdef uint32_t number = self.group_count
        cdef QueueGroup* group = &self.groups[number]
        if not window_ms:
            key = <uint64_t>topic_id << 32 | queue
            found = self.numbers.get(key)
            if found is not None:
                return found
            self.numbers[key] = number
        group.topic_id, group.queue, group.window_ms, group.count, group.size = topic_id, queue, window_ms, 0, 0
        self.group_count += 1
        return number

    cdef bytes batches(self):
        """Return the batches of all groups, one after the other."""
        cdef size_t at = 0
        cdef uint32_t i
        cdef QueueGroup* group
        cdef Taken* taken
        cdef BatchHeader* header
        cdef bytes made
        cdef uint8_t* out
        for i in range(self.group_count):
            self.groups[i].at = at + BATCH_HEADER_SIZE
            at += (BATCH_HEADER_SIZE + self.groups[i].size + 7) & ~<size_t>7
        made = PyBytes_FromStringAndSize(NULL, at)
        out = <uint8_t*>PyBytes_AS_STRING(made)
        memset(out, 0, at)
        for i in range(self.group_count):
            group = &self.groups[i]
            header = <BatchHeader*>(out + group.at - BATCH_HEADER_SIZE)
            header.size = <uint32_t>(BATCH_HEADER_SIZE + group.size)
            header.magic, header.kind, header.flags = BATCH_MAGIC, KIND_FIRED, BATCH_CHECK_IDS if group.window_ms else 0
            header.topic_id, header.queue, header.count, header.reserved = group.topic_id, group.queue, group.count, group.window_ms
        for i in range(self.count):
            taken = &self.taken[i]
            group = &self.groups[taken.group]
            memcpy(out + group.at, self.copies + taken.at, taken.size)
            group.at += taken.size
        return made

    cdef list groups_of_numbers(self):
        cdef uint32_t i
        cdef list found = [[] for i in range(self.group_count)]
        for i in range(self.count):
            (<list>found[self.taken[i].group]).append(self.taken[i].number)
        return found

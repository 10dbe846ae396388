# cython: language_level=3, boundscheck=False, wraparound=False
"""Filling the table at the start: a segment's TIMER batches, read where its index says that they are. Twin: in table_pure.py."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from engine.log.segment._index cimport BatchHeader, IndexEntry, EntrySource, crc32c_extend, key_of
from engine.timers._record cimport HEAD, RECORD_HEAD, TimerHead
from engine.timers._table cimport Table, mix

cdef enum:
    BATCH_HEADER = 48
    MAGIC = 0x5042
    KIND_TIMER = 8
    WINDOW = 1 << 20


def load(Table table, EntrySource source, file, uint64_t base, bytes log_id, list dead):
    """Take in a segment's timers but for the sorted addresses of dead ones. Blocks for as long as it takes to read them.

    Returns: (hashes of those that follow another, how many there are with the dead, bytes that do not verify).
    """
    cdef uint32_t seed = crc32c_extend(0, <const char*>log_id, len(log_id))
    cdef uint32_t count = 0, i = 0, last
    cdef const IndexEntry* run = source.find_run(key_of(0, KIND_TIMER), &count)
    cdef Loading loading = Loading(table, table.number_of(base) if count else 0, dead)
    cdef uint64_t start, end
    cdef uint64_t lost = 0
    cdef bytes window
    cdef const uint8_t* data
    cdef BatchHeader* header
    cdef uint64_t position
    while i < count:
        start, last = run[i].at, i
        while last + 1 < count and run[last + 1].at >= run[last].at and run[last + 1].at + run[last + 1].size - start <= WINDOW:
            last += 1
        end = <uint64_t>run[last].at + run[last].size
        window = file.read_at(end - start, start)
        data = <const uint8_t*>PyBytes_AS_STRING(window)
        while i <= last:
            header = <BatchHeader*>(data + (run[i].at - start))
            position = base + run[i].at
            if (run[i].at - start + run[i].size > <uint64_t>len(window) or header.size != run[i].size or header.magic != MAGIC
                    or crc32c_extend(crc32c_extend(seed, &position, 8), <uint8_t*>header + 4, header.size - 4) != header.crc):
                lost += run[i].size
            else:
                lost += loading.batch(<const uint8_t*>header, run[i].size, run[i].at)
            i += 1
    return loading.following, loading.total, lost


cdef class Loading:
    """One segment's way into the table."""

    cdef Table table
    cdef uint32_t number
    cdef list dead
    cdef Py_ssize_t dead_at
    cdef list following
    cdef size_t total

    def __init__(self, Table table, uint32_t number, list dead):
        self.table, self.number, self.dead, self.following = table, number, dead, []

    cdef uint64_t batch(self, const uint8_t* batch, uint32_t size, uint32_t address) except? 0xFFFFFFFFFFFFFFFF:
        """Take in a batch that verifies; returns how many of its records make no sense."""
        cdef const uint8_t* at = batch + BATCH_HEADER
        cdef const uint8_t* record
        cdef TimerHead* head
        cdef uint32_t record_size, where, hashed
        cdef uint64_t bad = 0
        while at + RECORD_HEAD + HEAD <= batch + size:
            record_size = (<const uint32_t*>at)[0]
            where = address + <uint32_t>(at - batch)
            head = <TimerHead*>(at + RECORD_HEAD)
            record = at + RECORD_HEAD + HEAD
            at += 4 + record_size
            self.total += 1
            if at > batch + size or record_size < RECORD_HEAD - 4 + HEAD + 2 or self.is_dead(where):
                continue
            if record[0] > 1 or record + head.id_at + head.id_size > at:
                bad += 1
                continue
            hashed = mix(head.topic_id, hash_of_id(record, head))
            self.table.put(self.number, where, <uint64_t>head.due_ms, hashed)
            if head.previous:
                self.following.append(hashed)
        return bad

    cdef bint is_dead(self, uint32_t address) except -1:
        while self.dead_at < len(self.dead) and self.dead[self.dead_at] < address:
            self.dead_at += 1
        return self.dead_at < len(self.dead) and self.dead[self.dead_at] == address


cdef const char* HEX = b"0123456789abcdef"


cdef Py_hash_t hash_of_id(const uint8_t* record, const TimerHead* head) except? -1:
    """Of the id as clients see it."""
    cdef char shown[32]
    cdef int i
    if not record[0] & 1:
        return hash(PyBytes_FromStringAndSize(<const char*>record + head.id_at, head.id_size))
    for i in range(16):
        shown[2 * i] = HEX[record[1 + i] >> 4]
        shown[2 * i + 1] = HEX[record[1 + i] & 15]
    return hash(PyBytes_FromStringAndSize(shown, 32))

# cython: language_level=3, boundscheck=False, wraparound=False
"""Loads a segment's TIMER batches into the table at start-up, by the segment's index. Reference: load() in table.py."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from engine.log.segment._index cimport BatchHeader, IndexEntry, EntrySource, crc32c_extend, key_of
from engine.link.constants cimport BATCH_HEADER_SIZE, BATCH_MAGIC, KIND_TIMER, RECORD_HEAD_SIZE
from engine.link.loads cimport load32
from engine.timers._timer_head cimport TIMER_HEAD_SIZE, TimerHead
from engine.timers._table cimport TimerTable, mix

cdef enum:
    WINDOW = 1 << 20             # bytes per read


def load(TimerTable table, EntrySource source, file, uint64_t base, bytes log_id, list ended):
    """Add a segment's timers to the table, except those at the sorted addresses `ended`. Blocks while it reads them.

    Returns: (hashes of timers that follow another, number of all timers, number of bytes that fail verification or cannot be read).

    Bounds: entries of the index are not trusted. A batch counts only if it lies within `window` and its header's size
    and checksum match.
    """
    cdef uint32_t seed = crc32c_extend(0, <const char*>log_id, len(log_id))
    cdef uint32_t count = 0, i = 0, last
    cdef uint32_t apart = 0      # batches before it are read one by one: a window over them could not be read
    cdef const IndexEntry* run = source.find_run(key_of(0, KIND_TIMER), &count)
    cdef SegmentLoad loading = SegmentLoad(table, table.number_of(base) if count else 0, ended)
    cdef uint64_t start, end
    cdef uint64_t lost = 0
    cdef bytes window
    cdef const uint8_t* data
    cdef BatchHeader* header
    cdef uint64_t position
    while i < count:
        start, last = run[i].at, i
        while i >= apart and last + 1 < count and run[last + 1].at >= run[last].at and run[last + 1].at + run[last + 1].size - start <= WINDOW:
            last += 1
        end = <uint64_t>run[last].at + run[last].size
        try:
            window = file.read_at(end - start, start)
        except OSError:
            if last == i:
                lost += run[i].size
                i += 1
            apart = last + 1
            continue
        data = <const uint8_t*>PyBytes_AS_STRING(window)
        while i <= last:
            header = <BatchHeader*>(data + (run[i].at - start))
            position = base + run[i].at
            if (run[i].at - start + run[i].size > <uint64_t>len(window) or header.size != run[i].size or header.magic != BATCH_MAGIC
                    or crc32c_extend(crc32c_extend(seed, &position, 8), <uint8_t*>header + 4, header.size - 4) != header.crc):
                lost += run[i].size
            else:
                lost += loading.batch(<const uint8_t*>header, run[i].size, run[i].at)
            i += 1
    return loading.following, loading.total, lost


cdef class SegmentLoad:
    """Load of one segment."""

    cdef TimerTable table
    cdef uint32_t number
    cdef list ended
    cdef Py_ssize_t ended_at
    cdef list following
    cdef size_t total

    def __init__(self, TimerTable table, uint32_t number, list ended):
        self.table, self.number, self.ended, self.following = table, number, ended, []

    cdef uint64_t batch(self, const uint8_t* batch, uint32_t size, uint32_t address) except? 0xFFFFFFFFFFFFFFFF:
        """Add the timers of a verified batch; returns the number of malformed records.

        Bounds: each record's size is checked against the end of the batch, and the id's position against the end of the
        record.
        """
        cdef const uint8_t* at = batch + BATCH_HEADER_SIZE
        cdef const uint8_t* record
        cdef TimerHead* head
        cdef uint32_t record_size, where, hashed
        cdef uint64_t bad = 0
        while at + RECORD_HEAD_SIZE + TIMER_HEAD_SIZE <= batch + size:
            record_size = load32(at)
            where = address + <uint32_t>(at - batch)
            head = <TimerHead*>(at + RECORD_HEAD_SIZE)
            record = at + RECORD_HEAD_SIZE + TIMER_HEAD_SIZE
            at += 4 + record_size
            self.total += 1
            if at > batch + size or record_size < RECORD_HEAD_SIZE - 4 + TIMER_HEAD_SIZE + 2 or self.is_ended(where):
                continue
            if record[0] > 1 or record + head.id_at + head.id_size > at:
                bad += 1
                continue
            hashed = mix(head.topic_id, hash_of_id(record, head))
            self.table.put(self.number, where, <uint64_t>head.due_ms, hashed)
            if head.previous:
                self.following.append(hashed)
        return bad

    cdef bint is_ended(self, uint32_t address) except -1:
        while self.ended_at < len(self.ended) and self.ended[self.ended_at] < address:
            self.ended_at += 1
        return self.ended_at < len(self.ended) and self.ended[self.ended_at] == address


cdef const char* HEX = b"0123456789abcdef"


cdef Py_hash_t hash_of_id(const uint8_t* record, const TimerHead* head) except? -1:
    """Return the hash of the id as clients see it."""
    cdef char shown[32]
    cdef int i
    if not record[0] & 1:
        return hash(PyBytes_FromStringAndSize(<const char*>record + head.id_at, head.id_size))
    for i in range(16):
        shown[2 * i] = HEX[record[1 + i] >> 4]
        shown[2 * i + 1] = HEX[record[1 + i] & 15]
    return hash(PyBytes_FromStringAndSize(shown, 32))

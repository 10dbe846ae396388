# cython: language_level=3
"""Batches off the disk: verify, slice, and scan a whole segment. Twin: read_pure.py."""
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from posix.unistd cimport pread

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.log.segment._index cimport BatchHeader, IndexEntry, EntrySource, SegmentIndex, crc32c_extend, key_of

from engine.log.types import RecordSlice

cdef enum:
    MAGIC = 0x5042
    HEADER_SIZE = 48
    KIND_MAX = 15
    GAP_MAX = 4096               # two batches at most this far apart are worth one read
    WINDOW = 65536

cdef object new_tuple = tuple.__new__

# How a read ended; read_pure.py has the same.
cdef enum:
    DONE = 0                     # limits reached, or no more batches here
    BELOW = 1                    # the run begins above the offset, or there is none
    HOLE = 2                     # offsets are missing before the run's next batch
    DAMAGED = 3                  # the batch does not verify


cdef class BatchReader:
    """Reads batches of one log. Used by one thread at a time."""

    cdef uint32_t seed
    cdef uint8_t* scratch
    cdef size_t scratch_size

    def __cinit__(self, bytes log_id):
        self.seed = crc32c_extend(0, <const char*>log_id, len(log_id))

    def __dealloc__(self):
        free(self.scratch)

    cdef bint verifies(self, const uint8_t* batch, uint64_t position) noexcept nogil:
        cdef BatchHeader* header = <BatchHeader*>batch
        cdef uint32_t crc = crc32c_extend(self.seed, &position, 8)
        return crc32c_extend(crc, batch + 4, header.size - 4) == header.crc

    cdef const uint8_t* fetch(self, object file, int fd, uint64_t at, size_t size, size_t* got) except NULL:
        """`size` bytes of the file into the scratch buffer; fewer only at its end."""
        cdef ssize_t taken
        cdef uint8_t* grown
        cdef const uint8_t[::1] view
        if size > self.scratch_size:
            grown = <uint8_t*>realloc(self.scratch, size)
            if grown == NULL:
                raise MemoryError()
            self.scratch = grown
            self.scratch_size = size
        got[0] = 0
        if fd < 0:
            data = file.read_at(size, at)
            view = data
            if view.shape[0]:
                memcpy(self.scratch, &view[0], view.shape[0])
            got[0] = view.shape[0]
            return self.scratch
        while got[0] < size:
            taken = pread(fd, self.scratch + got[0], size - got[0], at + got[0])
            if taken < 0:
                if errno == EINTR:
                    continue
                raise OSError(errno, f"cannot read {file.path} at {at}")
            if taken == 0:
                break
            got[0] += taken
        return self.scratch

    def read(self, EntrySource source, file, uint32_t topic_id, uint32_t queue, uint64_t limit_at, uint64_t offset,
             int64_t max_records, int64_t max_bytes, list out, bint whole=False):
        """Append the queue's pieces from `offset` on to `out`, from batches that begin below `limit_at` in the file.

        The first record is given whatever its size as long as `out` was empty; with `whole` so is all of the batch in which `max_bytes` ends.

        Returns:
            (how it ended, next offset, records left, bytes left, byte address of the damage, its bytes). At a HOLE the next offset is the first one
            behind it; when DAMAGED, the one behind the bad batch.
        """
        cdef uint32_t total = 0
        cdef const IndexEntry* run = source.find_run(key_of(topic_id, queue), &total)
        cdef uint32_t low = 0
        cdef uint32_t high = total
        cdef uint32_t middle
        cdef int fd = file.fileno()
        cdef uint64_t window_at = 0
        cdef size_t window_size = 0
        cdef const uint8_t* window = NULL
        cdef const uint8_t* batch
        cdef const IndexEntry* entry
        cdef uint64_t span_end
        cdef BatchHeader* header
        cdef const uint8_t* start
        cdef const uint8_t* end
        cdef uint32_t skipped, taken, record_size
        while low < high:
            middle = (low + high) >> 1
            if run[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return BELOW, offset, max_records, max_bytes, 0, 0
        low -= 1
        while low < total and max_records > 0 and (max_bytes > 0 or not out):
            entry = &run[low]
            if entry.at >= limit_at:
                break
            if offset < entry.base_offset:
                return HOLE, entry.base_offset, max_records, max_bytes, entry.at, 0
            if offset >= entry.base_offset + entry.count:
                low += 1
                continue
            if window == NULL or entry.at < window_at or entry.at + entry.size > window_at + window_size:
                window_at = entry.at
                span_end = <uint64_t>entry.at + entry.size
                high = low + 1
                while (high < total and high - low < max_records and run[high].at >= span_end and run[high].at - span_end <= GAP_MAX
                       and <uint64_t>run[high].at + run[high].size - window_at <= WINDOW and run[high].at < limit_at):
                    span_end = <uint64_t>run[high].at + run[high].size
                    high += 1
                window = self.fetch(file, fd, window_at, span_end - window_at, &window_size)
            batch = window + (entry.at - window_at)
            header = <BatchHeader*>batch
            if (entry.at + entry.size > window_at + window_size or entry.size < HEADER_SIZE or header.size != entry.size
                    or header.base_offset != entry.base_offset or header.count != entry.count or header.topic_id != topic_id
                    or header.queue != queue or header.magic != MAGIC or not self.verifies(batch, source.base + entry.at)):
                return DAMAGED, entry.base_offset + entry.count, max_records, max_bytes, entry.at, entry.size
            start = batch + HEADER_SIZE
            end = batch + entry.size
            skipped = <uint32_t>(offset - entry.base_offset)
            taken = entry.count - skipped
            if skipped or taken > max_records or (end - start > max_bytes and not whole):
                for _ in range(skipped):
                    start += 4 + (<const uint32_t*>start)[0]
                taken = 0
                end = start
                while taken < entry.count - skipped and taken < max_records:
                    record_size = 4 + (<const uint32_t*>end)[0]
                    if end - start + record_size > max_bytes and (taken or out) and not whole:
                        break
                    end += record_size
                    taken += 1
                if taken == 0:
                    max_bytes = 0
                    break
            out.append(new_tuple(RecordSlice, (offset, taken, header.stored_at_ms, PyBytes_FromStringAndSize(<const char*>start, end - start))))
            max_records -= taken
            max_bytes -= end - start
            if max_bytes < 0:
                max_bytes = 0
            offset += taken
            if taken < entry.count - skipped:
                if max_records:
                    max_bytes = 0
                break
            low += 1
        return DONE, offset, max_records, max_bytes, 0, 0

    def check(self, buffer, uint64_t at, uint64_t end, uint64_t position):
        """Size in bytes of the valid batch at `at`, or 0. `position` is its place in the log, `end` the end of the bytes."""
        cdef const uint8_t[::1] view = buffer
        if end > <uint64_t>view.shape[0]:
            end = view.shape[0]
        return self.size_at(&view[0] + at, end - at, position) if at < end else 0

    cdef uint32_t size_at(self, const uint8_t* batch, uint64_t left, uint64_t position) noexcept nogil:
        cdef BatchHeader* header = <BatchHeader*>batch
        if left < HEADER_SIZE or header.magic != MAGIC or header.size < HEADER_SIZE or header.size > left or header.kind > KIND_MAX:
            return 0
        return header.size if self.verifies(batch, position) else 0

    def scan(self, SegmentIndex index, buffer, uint64_t at, uint64_t end):
        """Take all valid batches from byte address `at` on into the index, up to the first invalid one.

        Returns:
            (address behind the last valid batch, [address of each batch that is not MESSAGES], highest epoch, address of the last valid
            batch or 0, its checksum).
        """
        cdef const uint8_t[::1] view = buffer
        cdef const uint8_t* data
        cdef BatchHeader* header
        cdef uint32_t size
        cdef uint32_t epoch = 0
        cdef uint64_t last = 0
        cdef uint32_t last_crc = 0
        control = []
        if end > <uint64_t>view.shape[0]:
            end = view.shape[0]
        if end == 0:
            return at, control, 0, 0, 0
        data = &view[0]
        while at < end:
            size = self.size_at(data + at, end - at, index.base + at)
            if size == 0:
                break
            header = <BatchHeader*>(data + at)
            index.add(index.claim(key_of(header.topic_id, header.queue)), header.base_offset, <uint32_t>at, size, header.count,
                      header.stored_at_ms)
            if header.kind:
                control.append(at)
            if header.epoch > epoch:
                epoch = header.epoch
            last = at
            last_crc = header.crc
            at += (<uint64_t>size + 7) & ~<uint64_t>7
        return at, control, epoch, last, last_crc

    def find_next(self, buffer, uint64_t base, uint64_t at, uint64_t end):
        """Byte address of the first valid batch at or after `at` (a multiple of 8), or None. The seeded checksum makes a false hit impossible."""
        cdef const uint8_t[::1] view = buffer
        cdef const uint8_t* data
        cdef uint64_t found = 0
        if end > <uint64_t>view.shape[0]:
            end = view.shape[0]
        if end < HEADER_SIZE or at > end - HEADER_SIZE:
            return None
        data = &view[0]
        with nogil:
            while at + HEADER_SIZE <= end:
                if (<BatchHeader*>(data + at)).magic == MAGIC and self.size_at(data + at, end - at, base + at):
                    found = at
                    break
                at += 8
        return found or None


# cython: language_level=3
"""Batches from the disk: verifying, slicing, and scanning a whole segment. Reference: batch_reader.py."""
cimport cython
from libc.errno cimport EIO, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from posix.unistd cimport pread

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.link.constants cimport BATCH_COPIED, BATCH_HEADER_SIZE, BATCH_MAGIC, KIND_MAX
from engine.log.segment._index cimport BatchHeader, EntrySource, IndexEntry, SegmentIndex, crc32c_extend, key_of
from engine.log.segment._slice cimport Slice, cut, last_at_or_below

from engine.log.segment.read_end import ReadEnd
from engine.log.types import RecordSlice

cdef enum:
    GAP_MAX = 4096               # two batches at most this far apart are worth one read
    WINDOW = 65536

# How a read ended, as in read_end.py.
cdef enum:
    DONE = 0
    BELOW = 1
    HOLE = 2
    DAMAGED = 3
    UNREADABLE = 4

cdef object new_tuple = tuple.__new__
cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF


cdef struct ReadState:           # of one read, from call to end
    const IndexEntry* run        # the queue's entries in this segment, by offset
    uint32_t count
    uint32_t at                  # the entry to read next
    uint64_t key                 # topic id and queue
    uint64_t base                # of the segment
    uint64_t limit_at            # batches from this byte address on are not read
    uint64_t offset              # to read next
    int64_t records_left
    int64_t bytes_left
    bint whole                   # return the whole batch in which bytes_left ends
    bint some                    # something was returned already
    const uint8_t* window        # bytes of the file from window_at on, in the reader's scratch buffer
    uint64_t window_at
    size_t window_size
    uint64_t bad_at
    uint32_t bad_size
    int error                    # errno of the last read of the file; 0: it succeeded


cdef inline uint64_t span_end(const ReadState* state, const IndexEntry* entry) noexcept nogil:
    """Address after the last batch that is worth reading together with this one."""
    cdef uint64_t end = <uint64_t>entry.at + entry.size
    cdef uint32_t following = state.at + 1
    cdef const IndexEntry* other
    while following < state.count and following - state.at < state.records_left:
        other = &state.run[following]
        if (other.at < end or other.at - end > GAP_MAX or other.at >= state.limit_at
                or <uint64_t>other.at + other.size - entry.at > WINDOW):
            break
        end = <uint64_t>other.at + other.size
        following += 1
    return end


cdef inline uint32_t slice_batch(const ReadState* state, const IndexEntry* entry, const uint8_t* batch, Slice* found) noexcept nogil:
    """Set `found` to the wanted part of a verified batch. Returns the number of its records from the offset on."""
    cdef uint32_t skipped = <uint32_t>(state.offset - entry.base_offset)
    found.first_offset = <int64_t>state.offset
    found.stored_at_ms = (<BatchHeader*>batch).stored_at_ms
    found.records = batch + BATCH_HEADER_SIZE
    found.count, found.size = entry.count, entry.size - BATCH_HEADER_SIZE
    if skipped or found.count > state.records_left or (found.size > state.bytes_left and not state.whole):
        cut(found, skipped, state.records_left, NO_LIMIT if state.whole else state.bytes_left, state.some)
    return entry.count - skipped


cdef inline void take(ReadState* state, const Slice* found) noexcept nogil:
    state.some = True
    state.offset += found.count
    state.records_left -= found.count
    state.bytes_left -= found.size
    if state.bytes_left < 0:
        state.bytes_left = 0


@cython.final
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
        """The caller has checked that all of header.size, at least a header, lies within its bytes."""
        cdef BatchHeader* header = <BatchHeader*>batch
        cdef uint32_t crc = crc32c_extend(self.seed, &position, 8)
        return crc32c_extend(crc, batch + 4, header.size - 4) == header.crc

    cdef const uint8_t* fetch(self, object file, uint64_t at, size_t size, ReadState* state) except? NULL:
        """Read `size` bytes of the file into the scratch buffer, fewer only at its end, and set the state's window size.

        NULL when the disk cannot read them: `state.error` is set then.
        """
        cdef ssize_t taken
        cdef uint8_t* grown
        cdef const uint8_t[::1] view
        cdef int fd = file.fileno()
        cdef size_t got = 0
        state.error = 0
        state.window_size = 0
        if size > self.scratch_size:
            grown = <uint8_t*>realloc(self.scratch, size)
            if grown == NULL:
                raise MemoryError()
            self.scratch = grown
            self.scratch_size = size
        if fd < 0:
            try:
                data = file.read_at(size, at)
            except OSError as refused:
                state.error = refused.errno or EIO
                return NULL
            view = data
            if view.shape[0]:
                memcpy(self.scratch, &view[0], view.shape[0])
            state.window_size = view.shape[0]
            return self.scratch
        while got < size:
            taken = pread(fd, self.scratch + got, size - got, at + got)
            if taken < 0:
                if errno == EINTR:
                    continue
                state.error = errno
                return NULL
            if taken == 0:
                break
            got += taken
        state.window_size = got
        return self.scratch

    def read(self, EntrySource source, file, uint32_t topic_id, uint32_t queue, uint64_t limit_at, uint64_t offset,
             int64_t max_records, int64_t max_bytes, list out, bint whole=False):
        """Append the queue's slices from `offset` on to `out`, from batches that begin below `limit_at` in the file.

        The first record is returned whatever its size as long as `out` was empty. With `whole` so is all of the batch
        in which `max_bytes` ends. Returns a ReadEnd.
        """
        cdef ReadState state
        cdef int how = BELOW
        state.key = key_of(topic_id, queue)
        state.count = 0
        state.run = source.find_run(state.key, &state.count)
        state.base, state.limit_at, state.offset = source.base, limit_at, offset
        state.records_left, state.bytes_left, state.whole, state.some = max_records, max_bytes, whole, len(out) > 0
        state.window, state.window_at, state.window_size = NULL, 0, 0
        state.bad_at = state.bad_size = 0
        state.error = 0
        if state.count and state.run[0].base_offset <= offset:
            state.at = last_at_or_below(state.run, state.count, offset)
            how = self.read_run(&state, file, out)
        return new_tuple(
            ReadEnd, (how, state.offset, state.records_left, state.bytes_left, state.bad_at, state.bad_size)
        )

    cdef int read_run(self, ReadState* state, object file, list out) except -1:
        """Slice batch after batch until a limit is reached. Returns how it ended."""
        cdef const IndexEntry* entry
        cdef const uint8_t* batch
        cdef Slice found
        cdef uint32_t wanted
        while state.at < state.count and state.records_left > 0 and (state.bytes_left > 0 or not state.some):
            entry = &state.run[state.at]
            if entry.at >= state.limit_at:
                break
            if state.offset < entry.base_offset:
                state.offset, state.bad_at = entry.base_offset, entry.at
                return HOLE
            if state.offset >= entry.base_offset + entry.count:
                state.at += 1
                continue
            batch = self.batch_of(state, entry, file)
            if batch == NULL or not self.matches(batch, entry, state):
                state.offset, state.bad_at, state.bad_size = entry.base_offset + entry.count, entry.at, entry.size
                return UNREADABLE if batch == NULL and state.error else DAMAGED
            wanted = slice_batch(state, entry, batch, &found)
            if found.count == 0:
                state.bytes_left = 0
                break
            records = PyBytes_FromStringAndSize(<const char*>found.records, found.size)
            out.append(new_tuple(RecordSlice, (found.first_offset, found.count, found.stored_at_ms, records)))
            take(state, &found)
            if found.count < wanted:
                if state.records_left:
                    state.bytes_left = 0
                break
            state.at += 1
        return DONE

    cdef const uint8_t* batch_of(self, ReadState* state, const IndexEntry* entry, object file) except? NULL:
        """The batch's bytes: from the window, else read together with following batches of the queue that lie close by.

        NULL when the file ends within it, or when the disk cannot read it (`state.error`).
        """
        cdef uint64_t end = state.window_at + state.window_size
        if state.window == NULL or entry.at < state.window_at or entry.at + entry.size > end:
            state.window_at = entry.at
            end = span_end(state, entry)
            state.window = self.fetch(file, entry.at, end - entry.at, state)
            if state.window == NULL and end > <uint64_t>entry.at + entry.size:
                # A sector that cannot be read costs the batches on it, not the one before them.
                state.window = self.fetch(file, entry.at, entry.size, state)
            if state.window == NULL or entry.size > state.window_size:
                return NULL
        return state.window + (entry.at - state.window_at)

    cdef bint matches(self, const uint8_t* batch, const IndexEntry* entry, const ReadState* state) noexcept nogil:
        """Whether the bytes are the very batch that the index means, and verify.

        The caller has all entry.size bytes.
        """
        cdef BatchHeader* header = <BatchHeader*>batch
        return (
            entry.size >= BATCH_HEADER_SIZE and header.size == entry.size and header.base_offset == entry.base_offset
            and header.count == entry.count and key_of(header.topic_id, header.queue) == state.key
            and header.magic == BATCH_MAGIC and self.verifies(batch, state.base + entry.at)
        )

    def check(self, buffer, uint64_t at, uint64_t end, uint64_t position):
        """Size in bytes of the valid batch at `at`, or 0.

        `position` is its own in the log, `end` the end of the bytes.
        """
        cdef const uint8_t[::1] view = buffer
        if end > <uint64_t>view.shape[0]:
            end = view.shape[0]
        return self.size_at(&view[0] + at, end - at, position) if at < end else 0

    cdef uint32_t size_at(self, const uint8_t* batch, uint64_t left, uint64_t position) noexcept nogil:
        """Size of the valid batch that begins here, or 0. Reads no more than `left` bytes."""
        cdef BatchHeader* header = <BatchHeader*>batch
        if left < BATCH_HEADER_SIZE or header.magic != BATCH_MAGIC or header.size < BATCH_HEADER_SIZE or header.size > left or header.kind > KIND_MAX:
            return 0
        return header.size if self.verifies(batch, position) else 0

    def scan(self, SegmentIndex index not None, buffer, uint64_t at, uint64_t end, uint64_t origin=0):
        """Take all valid batches from byte address `at` on into the index, up to the first invalid one.

        Args:
            origin: address of the buffer's first byte.
        Returns:
            (address after the last valid batch, [address of each batch that is copied or not MESSAGES], highest epoch,
            address of the last valid batch or 0, its checksum).
        """
        return self.walk(index, index.base, buffer, at, end, origin, False)

    def verify(self, uint64_t base, buffer, uint64_t at, uint64_t end, uint64_t origin=0):
        """As scan() of the segment at `base`, without an index."""
        return self.walk(None, base, buffer, at, end, origin, False)

    def enter(self, SegmentIndex index not None, buffer, uint64_t at, uint64_t end, uint64_t origin=0):
        """Take the batches from `at` to `end` into the index. The caller has verified them."""
        self.walk(index, index.base, buffer, at, end, origin, True)

    cdef object walk(
        self, SegmentIndex index, uint64_t base, buffer, uint64_t at, uint64_t end, uint64_t origin, bint verified
    ):
        cdef const uint8_t[::1] view = buffer
        cdef const uint8_t* data
        cdef BatchHeader* header
        cdef uint32_t size
        cdef uint32_t epoch = 0
        cdef uint64_t last = 0
        cdef uint32_t last_crc = 0
        control = []
        if end > origin + <uint64_t>view.shape[0]:
            end = origin + view.shape[0]
        if view.shape[0] == 0 or at < origin:
            return at, control, 0, 0, 0
        data = &view[0]
        while at < end:
            header = <BatchHeader*>(data + (at - origin))
            size = header.size if verified else self.size_at(data + (at - origin), end - at, base + at)
            if size == 0:
                break
            if index is not None:
                index.add(index.claim(key_of(header.topic_id, header.queue)), header.base_offset, <uint32_t>at, size,
                          header.count, header.stored_at_ms)
            if header.kind or header.flags & BATCH_COPIED:
                control.append(at)
            if header.epoch > epoch:
                epoch = header.epoch
            last = at
            last_crc = header.crc
            at += (<uint64_t>size + 7) & ~<uint64_t>7
        return at, control, epoch, last, last_crc

    def find_next(self, buffer, uint64_t base, uint64_t at, uint64_t end):
        """Byte address of the first valid batch at or after `at` (a multiple of 8), or None.

        The checksum is seeded with the log's id and the position, so other bytes cannot pass for a batch.
        """
        cdef const uint8_t[::1] view = buffer
        cdef const uint8_t* data
        cdef uint64_t found = 0
        if end > <uint64_t>view.shape[0]:
            end = view.shape[0]
        if end < BATCH_HEADER_SIZE or at > end - BATCH_HEADER_SIZE:
            return None
        data = &view[0]
        with nogil:
            while at + BATCH_HEADER_SIZE <= end:
                if (<BatchHeader*>(data + at)).magic == BATCH_MAGIC and self.size_at(data + at, end - at, base + at):
                    found = at
                    break
                at += 8
        return found or None


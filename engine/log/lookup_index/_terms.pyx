# cython: language_level=3
"""Lookup terms of stored messages: ids as they are shown, and keys. Reference: terms.py.

Made for threads beside the loop: bytes are verified, hashed, compared and sorted without the GIL.
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.link.constants cimport BATCH_HEADER_SIZE, BATCH_MAGIC, KIND_FIRED, KIND_MAX, KIND_MESSAGES, RECORD_HAS_ID
from engine.link.loads cimport load32, load64
from engine.log.segment._ids cimport Names, find_names, siphash128
from engine.log.segment._index cimport BatchHeader, crc32c_extend
from engine.log.lookup_index._merge cimport LookupEntry, packed_blocks

cdef enum:
    DIGIT_BITS = 11
    DIGITS_MAX = 6
    NEARLY = 31                       # bits that three digits leave out
    FAMILY_ID = 1

cdef uint64_t HIGHEST = 0xFFFFFFFFFFFFFFFF
cdef uint16_t[256] HEX                # a byte's two digits, as they stand in memory


cdef void fill_hex() noexcept:
    cdef const char* digits = b"0123456789abcdef"
    cdef int i
    for i in range(256):
        (<char*>&HEX[i])[0] = digits[i >> 4]
        (<char*>&HEX[i])[1] = digits[i & 15]


fill_hex()


cdef struct Name:
    const uint8_t* data          # of an assigned id it is `shown`
    uint32_t size
    uint8_t shown[32]


cdef bint term_of(const uint8_t* record, int family, Name* name) noexcept nogil:
    """The id, as it is shown, or the key of a record (from its size field on); False when it has none."""
    cdef uint32_t size = load32(record) - 1
    cdef const uint8_t* message = record + 5
    cdef Names names
    cdef int i
    names.id_size = names.key_size = 0
    if record[4] & RECORD_HAS_ID:
        if family == FAMILY_ID:
            for i in range(16):
                memcpy(name.shown + 2 * i, &HEX[message[i]], 2)
            name.data, name.size = name.shown, 32
            return True
        message += 16
        size -= 16
    if not find_names(message, size, &names):
        return False
    if family == FAMILY_ID:
        name.data, name.size = names.id, names.id_size
    else:
        name.data, name.size = names.key, names.key_size
    return name.data != NULL


cdef inline bint is_named(const uint8_t* record, int family, const uint8_t* wanted, uint32_t size) noexcept nogil:
    cdef Name name
    return term_of(record, family, &name) and name.size == size and memcmp(name.data, wanted, size) == 0


cdef inline bint holds_messages(const BatchHeader* header) noexcept nogil:
    return header.topic_id != 0 and (header.kind == KIND_MESSAGES or header.kind == KIND_FIRED)


cdef class BatchScanner:
    """Replaces a BatchReader's `scan` in a WindowScan: takes whole batches in order, up to the first bytes that are
    none."""

    cdef uint64_t base
    cdef uint32_t seed

    def __cinit__(self, bytes log_id, uint64_t base, *_):
        self.seed = crc32c_extend(0, <const char*>log_id, len(log_id))
        self.base = base

    cdef bint take(self, const BatchHeader* header, uint32_t at) noexcept nogil:
        """Take a whole, verified batch of messages. Returns False when there is no memory."""
        return True

    def scan(self, index, buffer, uint64_t at, uint64_t end, uint64_t shift=0):
        """As BatchReader.scan, except that the index stays as it is, and control batches and epochs are ignored.

        `shift` is the file's address at which the buffer begins; `at` and `end` are addresses in the file.
        """
        cdef const uint8_t[::1] view = buffer
        cdef const BatchHeader* header
        cdef uint64_t position, last = 0
        cdef uint32_t last_crc = 0, crc
        cdef bint room = True
        end = min(end, shift + <uint64_t>view.shape[0])
        if at >= end:
            return at, [], 0, 0, 0
        with nogil:
            while room and at + BATCH_HEADER_SIZE <= end:
                header = <const BatchHeader*>&view[at - shift]
                if header.magic != BATCH_MAGIC or header.size < BATCH_HEADER_SIZE or header.size > end - at or header.kind > KIND_MAX:
                    break
                position = self.base + at
                crc = crc32c_extend(self.seed, &position, 8)
                if crc32c_extend(crc, <const uint8_t*>header + 4, header.size - 4) != header.crc:
                    break
                if holds_messages(header):
                    room = self.take(header, <uint32_t>at)
                last, last_crc = at, header.crc
                at += (<uint64_t>header.size + 7) & ~<uint64_t>7
        if not room:
            raise MemoryError()
        return at, [], 0, last, last_crc


cdef class SharedScan(BatchScanner):
    """Feeds one or two takers of one segment, and has the bytes read and verified once for both.

    Args:
        takers: at least one.
    """

    cdef BatchScanner first, second

    def __cinit__(self, bytes log_id, uint64_t base, BatchScanner first not None, BatchScanner second=None):
        self.first, self.second = first, second

    cdef bint take(self, const BatchHeader* header, uint32_t at) noexcept nogil:
        return self.first.take(header, at) and (self.second is None or self.second.take(header, at))


cdef class TermCollector(BatchScanner):
    """Collects a segment's sorted entries in passes of bounded memory: each takes the lowest hashes that are left.

    Args:
        family: 1 ids, 2 keys.
        entries_max: per pass; more only when one hash alone has more.
    """

    cdef LookupEntry* entries
    cdef size_t used, room, entries_max
    cdef int family
    cdef uint64_t k0, k1, low, high
    cdef readonly int64_t oldest_ms, newest_ms

    def __cinit__(self, bytes log_id, uint64_t base, int family, size_t entries_max):
        cdef const uint8_t* key = log_id
        memcpy(&self.k0, key, 8)
        memcpy(&self.k1, key + 8, 8)
        self.family, self.entries_max = family, entries_max
        self.oldest_ms, self.newest_ms = (<int64_t>1 << 62), -(<int64_t>1 << 62)
        self.high = HIGHEST

    def __dealloc__(self):
        free(self.entries)

    def begin(self, uint64_t low):
        """Take the hashes from `low` on, as far as there is room."""
        self.used, self.low, self.high = 0, low, HIGHEST

    cdef bint take(self, const BatchHeader* header, uint32_t at) noexcept nogil:
        cdef const uint8_t* record = <const uint8_t*>header + BATCH_HEADER_SIZE
        cdef const uint8_t* end = <const uint8_t*>header + header.size
        cdef Name name
        cdef uint64_t hashed, high
        self.oldest_ms = min(self.oldest_ms, header.stored_at_ms)
        self.newest_ms = max(self.newest_ms, header.stored_at_ms)
        while record < end:
            if term_of(record, self.family, &name):
                siphash128(self.k0, self.k1 ^ header.topic_id, name.data, name.size, &hashed, &high)
                if self.low <= hashed <= self.high and not self.add(hashed, at):
                    return False
            record += 4 + load32(record)
        return True

    cdef bint add(self, uint64_t hashed, uint32_t at) noexcept nogil:
        cdef LookupEntry* grown
        cdef size_t room
        if self.used >= self.entries_max:
            if not self.sort():
                return False
            self.cut()
            if hashed > self.high:
                return True
        if self.used == self.room:
            room = self.room * 2 + 4096
            grown = <LookupEntry*>realloc(self.entries, room * sizeof(LookupEntry))
            if grown == NULL:
                return False
            self.entries, self.room = grown, room
        self.entries[self.used].hash = hashed
        self.entries[self.used].at = at
        self.used += 1
        return True

    cdef void cut(self) noexcept nogil:
        """Leave the upper half of the sorted entries to the next pass; equal hashes stay together."""
        cdef size_t kept = self.used // 2
        cdef uint64_t border = self.entries[kept].hash
        while kept and self.entries[kept - 1].hash == border:
            kept -= 1
        if kept:
            self.high = border - 1
        else:
            while kept < self.used and self.entries[kept].hash == border:
                kept += 1
            self.high = border
        self.used = kept
        while self.used * 4 > self.entries_max * 3:
            self.entries_max *= 2

    cdef bint sort(self) noexcept nogil:
        """Sort by hash, and by address among equal hashes, since they came in that order; each pair once.

        Three digits leave only few entries to be put in order. Returns False when there is no memory.
        """
        cdef LookupEntry* entries
        cdef size_t i, used = 0
        if self.used < 2:
            return True
        if not self.distribute(NEARLY):
            return False
        if not self.put_in_order() and not self.distribute(0):
            return False
        entries = self.entries
        for i in range(self.used):
            if used == 0 or entries[i].hash != entries[used - 1].hash or entries[i].at != entries[used - 1].at:
                entries[used] = entries[i]
                used += 1
        self.used = used
        return True

    cdef bint distribute(self, int from_bit) noexcept nogil:
        """Sort by the bits of the hashes from that one on, a digit after the other, the lowest first; equal ones keep
        their order. Returns False when there is no memory."""
        cdef LookupEntry* source = self.entries
        cdef LookupEntry* target
        cdef uint32_t starts[DIGITS_MAX][1 << DIGIT_BITS]
        cdef uint32_t* start
        cdef uint32_t sum, count
        cdef size_t i
        cdef uint64_t high
        cdef int digit, digits = (63 - from_bit) // DIGIT_BITS + 1
        target = <LookupEntry*>malloc(self.room * sizeof(LookupEntry))
        if target == NULL:
            return False
        memset(starts, 0, sizeof(starts))
        for i in range(self.used):
            high = source[i].hash >> from_bit
            for digit in range(digits):
                starts[digit][high & ((1 << DIGIT_BITS) - 1)] += 1
                high >>= DIGIT_BITS
        for digit in range(digits):
            start = starts[digit]
            sum = 0
            for i in range(<size_t>1 << DIGIT_BITS):
                count = start[i]
                start[i] = sum
                sum += count
            for i in range(self.used):
                count = source[i].hash >> (from_bit + digit * DIGIT_BITS) & ((1 << DIGIT_BITS) - 1)
                target[start[count]] = source[i]
                start[count] += 1
            source, target = target, source
        self.entries = source
        free(target)
        return True

    cdef bint put_in_order(self) noexcept nogil:
        """Move each entry before the greater ones; equal ones keep their order.

        Returns False when that takes too long: two terms with nearly the same hash may have many entries each.
        """
        cdef LookupEntry* entries = self.entries
        cdef LookupEntry entry
        cdef size_t i, at, moves = 0
        for i in range(1, self.used):
            entry = entries[i]
            at = i
            while at and entries[at - 1].hash > entry.hash:
                entries[at] = entries[at - 1]
                at -= 1
            entries[at] = entry
            moves += i - at
            if moves > self.used:
                return False
        return True

    def finish(self):
        """Sort what this pass took. Returns (number of entries, hash at which the next pass begins or None)."""
        cdef bint room
        with nogil:
            room = self.sort()
        if not room:
            raise MemoryError()
        return self.used, None if self.high == HIGHEST else self.high + 1

    def blocks(self, size_t first, size_t count, bytes seed, uint32_t number):
        """Up to `count` blocks of a file, with this pass's entries from `first` on; the first block has that number."""
        return packed_blocks(self.entries, self.used, first, count, seed, number)


cdef class TermSearcher(BatchScanner):
    """Finds the batches in which a message of a topic has a term; for segments without a lookup file.

    Args:
        from_ms, to_ms: stored at or after, and not after.
    """

    cdef int family
    cdef uint32_t topic_id
    cdef bytes name
    cdef const uint8_t* wanted
    cdef uint32_t wanted_size
    cdef int64_t from_ms, to_ms
    cdef uint32_t* hits
    cdef size_t used, room

    def __cinit__(self, bytes log_id, uint64_t base, int family, uint32_t topic_id, bytes name, int64_t from_ms, int64_t to_ms):
        self.family, self.topic_id, self.name, self.from_ms, self.to_ms = family, topic_id, name, from_ms, to_ms
        self.wanted, self.wanted_size = name, len(name)

    def __dealloc__(self):
        free(self.hits)

    cdef bint take(self, const BatchHeader* header, uint32_t at) noexcept nogil:
        cdef const uint8_t* record = <const uint8_t*>header + BATCH_HEADER_SIZE
        cdef const uint8_t* end = <const uint8_t*>header + header.size
        cdef uint32_t* grown
        if header.topic_id != self.topic_id or not self.from_ms <= header.stored_at_ms <= self.to_ms:
            return True
        while record < end and not is_named(record, self.family, self.wanted, self.wanted_size):
            record += 4 + load32(record)
        if record >= end:
            return True
        if self.used == self.room:
            grown = <uint32_t*>realloc(self.hits, (self.room * 2 + 64) * sizeof(uint32_t))
            if grown == NULL:
                return False
            self.hits, self.room = grown, self.room * 2 + 64
        self.hits[self.used] = at
        self.used += 1
        return True

    def found(self):
        """Addresses of the batches found since the last call, in order."""
        cdef size_t i
        found = [self.hits[i] for i in range(self.used)]
        self.used = 0
        return found


def records_with_term(bytes batch not None, int family, bytes name not None):
    """[(number in the batch, record as stored)] of a whole, verified batch's messages that have the term."""
    cdef const uint8_t* data = batch
    cdef const uint8_t* wanted = name
    cdef uint32_t at = BATCH_HEADER_SIZE, size, number = 0
    cdef uint32_t end = len(batch)
    found = []
    while at < end:
        size = 4 + load32(data + at)
        if is_named(data + at, family, wanted, len(name)):
            found.append((number, PyBytes_FromStringAndSize(<const char*>data + at, size)))
        number += 1
        at += size
    return found


def term_hash(bytes log_id not None, uint32_t topic_id, bytes name not None):
    """Hash under which a topic's message with that id or key is indexed."""
    cdef const char* key = log_id
    cdef uint64_t low, high
    siphash128(load64(key), load64(key + 8) ^ topic_id, name, len(name), &low, &high)
    return low

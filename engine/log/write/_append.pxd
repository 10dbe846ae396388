# cython: language_level=3
"""The native appender, for `cimport` by engine/server.

    from engine.log.write._append cimport Appender
    cdef Appender appender = log.appender

Only the loop's thread may call it. `results` takes 16 bytes per batch: u16 code, 2 zero bytes, u32 queue of a
DUPLICATE's first copy (else 0), u64 base offset. The caller's bytes are never changed and need to live only during the
call.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from posix.uio cimport iovec

from engine.log.segment._ids cimport IdWindow
from engine.log.segment._index cimport SegmentIndex
from engine.log.write._known_queues cimport KnownQueues
from engine.log.write._watches cimport Watches


@cython.final
cdef class Appender(KnownQueues):
    cdef readonly uint64_t end_position      # bytes below it are in the page cache; nothing at or above it can be read
    cdef public uint32_t epoch               # as written into batches
    cdef readonly SegmentIndex index         # of the segment being written
    cdef readonly IdWindow ids               # that batches with the flag "check ids" are checked against
    cdef readonly uint64_t segment_base
    cdef readonly uint64_t client_batches    # client batches appended so far (control batches excluded)

    # Checks, assigns offsets and writes. Returns the number of accepted batches; raises DiskFullError when nothing was
    # written.
    cdef int append_frame(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results) except -1

    # The same without the write: several frames, then one commit() at the end of the loop turn. `results` are valid at
    # once, but must not be answered before commit() has returned. Both may raise: DiskFullError or NotStoredError when
    # nothing staged since the last commit() is stored, so answer its `code` to all of them; PartlyWrittenError
    # when some of it may be (code 300).
    cdef int stage_frame(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results) except -1
    cdef int commit(self) except -1

    # The bytes from the position to the end, when the last write left all of them in memory; NULL: it did not, or the
    # next batches lie there. The address is valid until the next call.
    cdef const unsigned char* last_written(self, uint64_t position) noexcept

    cdef readonly uint64_t last_at           # byte address of the last written batch in its segment, 0: none
    cdef readonly uint32_t last_crc          # its checksum

    # The rest is private to the appender.
    cdef object roller, file, env
    cdef public int64_t stored_ms_min        # batches are stamped with this time while the caller's is before it
    cdef readonly object id_time             # by which the window of ids forgets; asked at most once per append
    cdef object monotonic_ms                 # the clock that it follows, and by how much it is ahead of that
    cdef int64_t id_ahead_ms
    cdef int64_t id_now_ms                   # its time during one append, -1 until a batch with the flag needs it
    cdef uint32_t staged_last_crc
    cdef str refusal
    cdef object refused_as               # class of the error
    cdef int fd
    cdef uint32_t seed
    cdef uint64_t segment_end, room_end, stage_position, staged_last_at
    cdef bint part_written, owes, lost, refuses, refuses_all
    cdef Watches watches
    cdef uint8_t* staging
    cdef size_t staged
    cdef size_t kept                         # bytes below `kept_end` that are at the start of `staging`, 0: none
    cdef uint64_t kept_end
    cdef iovec* parts
    cdef int part_count
    cdef uint64_t* undo
    cdef size_t undo_count, undo_room
    cdef int stage(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results, bint trusted) except -1
    cdef ssize_t write_by_object(self, int first, uint64_t at, int* error) except? -2
    cdef int stage_batch(self, const unsigned char* batch, bint trusted, int64_t now_ms, unsigned char* result) except -1
    cdef int check_batch(self, const unsigned char* batch, bint trusted) except -1
    cdef int make_room(self, uint64_t padded, size_t copied) except -1
    cdef int copy_batch(self, const unsigned char* batch, uint64_t base_offset, int64_t now_ms, uint64_t padded) except -1
    cdef int stage_all(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results, bint trusted) except -1
    cdef int give_up(self, error) except -1
    cdef int add_part(self, const void* data, size_t size) except -1
    cpdef int flush(self) except -1
    cdef int write_parts(self, int* error) except -1
    cdef int roll_back(self) except -1
    cdef int check_refusal(self, bint trusted) except -1

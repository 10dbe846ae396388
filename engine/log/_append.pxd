# cython: language_level=3
"""The native appender, for `cimport` by engine/server.

    from engine.log._append cimport Appender
    cdef Appender appender = log.appender

Only the loop's thread may call it. `results` takes 16 bytes a batch: u16 code, 6 zero bytes, u64 base offset. The caller's bytes are
never changed and need to live only during the call.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class Appender:
    cdef readonly uint64_t end_position      # bytes below it are in the page cache; nothing at or above it can be read
    cdef readonly uint32_t epoch             # as patched into batches

    # Validates, assigns offsets and writes. Returns how many batches were accepted; raises DiskFullError when the write was refused as a whole.
    cdef int append_frame(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results) except -1

    # The same without the write: several frames, then one commit() at the end of the loop turn. `results` are valid at once, but must not be
    # answered before commit() has returned. When commit() raises DiskFullError, nothing staged since the last commit() is stored: answer 203.
    cdef int stage_frame(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results) except -1
    cdef int commit(self) except -1

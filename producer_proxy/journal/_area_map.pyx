# cython: language_level=3, boundscheck=False, wraparound=False
"""Areas of a file in memory that outlives the process, for the intents of a batch each. Their bytes: see mapped.py."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* address, size_t size, int protection, int flags, int file, long offset)
    int munmap(void* address, size_t size)
    void* MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_SHARED

cdef extern from "crc32c.h" nogil:
    void crc32c_setup()
    uint32_t crc32c_extend(uint32_t crc, const void* data, size_t size)

cdef extern from "guarded_copy.h" nogil:
    int guarded_copy_setup()
    int guarded_copy(void* target, const void* source, size_t size)

cdef uint64_t MAGIC = 0x4E45504F4B545350   # "PSTKOPEN"

crc32c_setup()


cdef class AreaMap:
    """Maps `count` areas of a file that has this size and room on its disk.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, int file, uint32_t count):
        cdef void* found
        if guarded_copy_setup():
            raise OSError(0, "no handler for SIGBUS can be installed")
        found = mmap(NULL, <size_t>count * AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
        if found == MAP_FAILED:
            raise OSError(12, "the file cannot be mapped")
        self.start, self.count = <unsigned char*>found, count
        self.free, self.sequence = list(range(count - 1, -1, -1)), 0

    def take(self):
        """Begin a new use of an area: (its number, position of its first byte); None: there is no free one."""
        cdef unsigned char[20] head
        cdef uint32_t area, checksum
        if self.is_broken or not self.free:
            return None
        area = self.free.pop()
        self.sequence += 1
        memcpy(head, &MAGIC, 8)
        memcpy(head + 8, &self.sequence, 8)
        checksum = crc32c_extend(0, head, 16)
        memcpy(head + 16, &checksum, 4)
        if not self.put(area, 0, head, 20):
            return None
        return area, self.sequence * AREA_BYTES

    def release(self, uint32_t area):
        """End the use of an area: its bytes count for nothing any more."""
        cdef unsigned char[8] nothing
        memset(nothing, 0, 8)
        if self.put(area, 0, nothing, 8):
            self.free.append(area)

    cdef bint put(self, uint32_t area, size_t at, const unsigned char* data, size_t size) noexcept:
        """Copy bytes into a used area; whether they are there. The caller keeps within the area."""
        if self.start == NULL or guarded_copy(self.start + <size_t>area * AREA_BYTES + at, data, size):
            self.is_broken = True
            return False
        return True

    def close(self):
        """Unmap the file. Its bytes stay."""
        if self.start != NULL:
            munmap(self.start, <size_t>self.count * AREA_BYTES)
            self.start = NULL

    def __dealloc__(self):
        if self.start != NULL:
            munmap(self.start, <size_t>self.count * AREA_BYTES)

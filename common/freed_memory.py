"""Keeps memory that a process has freed, for its next use.

glibc gives freed memory at the end of its heap back to the system as soon as there are some hundred KiB of it. A proxy
that makes replies of megabytes then gets new pages for each of them, which the kernel has to clear first: that took
most of the consumer proxy's time on large pulls, and a tenth of what a dual write adds to the producer proxy's.
"""

import ctypes
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT_BYTES = 32 << 20
"""More holds memory that other processes could use; with 8 MiB the replies of one connection do not fit."""


def keep_freed_memory() -> None:
    """From now on, up to KEPT_BYTES of freed memory stay with this process. Does nothing with another C library."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)

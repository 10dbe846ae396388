"""Many buffered entries from bytes at once, native where it was built; NATIVE says which. PENSTOCK_PURE=1 forces the twin."""

import os

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("the pure twin was asked for")
    from producer_proxy.buffer._entries import entries_at, entries_of, marks_of

    NATIVE = True
except ImportError:
    from producer_proxy.buffer.entries import entries_at, entries_of, marks_of

    NATIVE = False

__all__ = ["NATIVE", "entries_at", "entries_of", "marks_of"]

"""Selects the native or the reference form of decoding many buffered entries."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("producer_proxy.buffer", "_entries")
if NATIVE and not TYPE_CHECKING:
    from producer_proxy.buffer._entries import entries_at, entries_of, marks_of
else:
    from producer_proxy.buffer.entries import entries_at, entries_of, marks_of

__all__ = ["NATIVE", "entries_at", "entries_of", "marks_of"]

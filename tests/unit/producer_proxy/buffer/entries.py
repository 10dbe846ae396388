"""Entries for tests."""

from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.store import BufferStore

NOW_MS = 1_700_000_000_000


def entry(number: int, topic: str = "orders", key: bytes | None = b"k", size: int = 20) -> BufferEntry:
    body = b"%d:" % number
    return BufferEntry(topic, key, number.to_bytes(16, "big"), body + b"x" * (size - len(body)), NOW_MS + number)


def number_of(found: BufferEntry) -> int:
    return int.from_bytes(found.assigned_id, "big")


def numbers(store: BufferStore, skip=(), count: int = 1000, size: int = 1 << 30) -> list[int]:
    return [number_of(kept.entry) for kept in store.take(skip, count, size)]

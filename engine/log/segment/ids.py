"""Ids of messages, and the window of ids that sends are checked against. Reference for _ids.pyx.

An id is compared as clients see it: what they set, or the 32 hex characters of an assigned one. Its hash is
SipHash-2-4-128, keyed by the log's id, with the second half of the key mixed with the topic's id. So no client can
choose ids that collide, and equal hashes mean equal ids (at ten million ids the odds against it are 10^24 to one).
"""

import struct
from mmap import mmap

from common.ids import ID_WINDOW_MS_MAX
from common.siphash import siphash_of
from common.wire.names import find_names
from engine.link.claim import CLAIM_QUEUE
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, FLAG_CHECK_IDS, ID_ENTRY, padded

SLOTS_MIN = 4096
SLOT_SIZE = ID_ENTRY.size + 2  # the native form has a filter in front of each table
TABLES_LEAST = 7
LEFT_S_MAX = ID_WINDOW_MS_MAX // 1000 + 61
"""What is left of a window at most: the longest one, the minute that a claim has more, and the rounding."""


def shown_id(record: bytes) -> bytes | None:
    """The id of a record (from its size field on) as clients see it; None when it has none."""
    if record[4] & 1:
        return record[5:21].hex().encode()
    return find_names(record[5:])[0]


def expiry_s(stored_at_ms: int, window_ms: int) -> int:
    """Unix second from which on the id is forgotten; never 0."""
    return min(max((stored_at_ms + window_ms + 999) // 1000, 1), 0xFFFFFFFF)


class _Table:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.count = self.expires_s = 0
        self.entries: dict[bytes, list[tuple[int, int, int]]] = {}


class IdWindow:
    """Recent ids, with the queue and offset of their first copies, in tables that fill one after the other.

    A full table is never changed, so no id is removed by itself. A table is dropped when the last of its ids is past
    its window, or earlier when there is no room. A look-up searches all tables, the newest first.
    """

    def __init__(self, log_id: bytes, bytes_max: int) -> None:
        self._k0, self._k1 = struct.unpack("<QQ", log_id)
        self._slots_max = bytes_max // SLOT_SIZE
        self.capacity = self._slots_max // 4 * 3
        self._tables: list[_Table] = []
        self._undo: list[tuple[_Table, bytes]] = []
        self._expected = 0
        self.hits = self.forgotten = 0

    @property
    def count(self) -> int:
        """Number of remembered ids; some may be past their window."""
        return sum(table.count for table in self._tables)

    @property
    def size_bytes(self) -> int:
        """Size of the tables."""
        return sum(table.slots for table in self._tables) * SLOT_SIZE

    def hash(self, topic_id: int, shown: bytes) -> bytes:
        """Hash of the topic and an id as clients see it."""
        return siphash_of(self._k0, self._k1 ^ topic_id, shown)

    def find(self, hashed: bytes, now_s: int) -> tuple[int, int] | None:
        """(queue, offset) of the first copy within its window; without a copy, of a claim; else None."""
        claim = None
        for table in reversed(self._tables):
            for offset, queue, expires_s in table.entries.get(hashed, ()):
                if expires_s > now_s:
                    if not queue & CLAIM_QUEUE:
                        return queue, offset
                    claim = claim or (queue, offset)
        return claim

    def add(self, hashed: bytes, offset: int, queue: int, expires_s: int, now_s: int) -> None:
        """Remember an id of which no copy was found."""
        while len(self._tables) > 1 and self._tables[0].expires_s <= now_s:
            self._drop_oldest(now_s)
        if not self._tables or self._tables[-1].count * 4 >= self._tables[-1].slots * 3:
            self._add_table(now_s)
        table = self._tables[-1]
        table.entries.setdefault(hashed, []).append((offset, queue, expires_s))
        table.count += 1
        table.expires_s = max(table.expires_s, expires_s)
        self._undo.append((table, hashed))

    def commit(self) -> None:
        """Keep the ids that were added."""
        self._undo.clear()

    def take_back(self) -> None:
        """Forget the ids added since the last commit()."""
        while self._undo:
            table, hashed = self._undo.pop()
            table.entries[hashed].pop()
            table.count -= 1

    def load(self, entries: bytes | memoryview, now_ms: int) -> None:
        """Add entries as collect() returns them, older ones first; those past their window are left out.

        One that was stamped by a clock that was ahead is kept for LEFT_S_MAX at most.
        """
        self._expected = len(entries) // ID_ENTRY.size
        for hashed, offset, queue, expires_s in ID_ENTRY.iter_unpack(entries):
            if expires_s > now_ms // 1000:
                self.add(hashed, offset, queue, min(expires_s, now_ms // 1000 + LEFT_S_MAX), now_ms // 1000)
                self.commit()
        self._expected = 0

    def find_id(self, topic_id: int, shown: bytes, now_ms: int) -> tuple[int, int] | None:
        """(queue, offset) of the id's first copy within its window, or None."""
        return self.find(self.hash(topic_id, shown), now_ms // 1000)

    def collect(self, data: bytes | memoryview | mmap, at: int, end: int) -> bytes:
        """Entries of 32 bytes for all batches with the flag "check ids" among the whole batches from `at` to `end`."""
        found = bytearray()
        while at < end:
            _, size, _, _, flags, _, topic_id, queue, _, window_ms, offset, stored_at_ms = BATCH_HEADER.unpack_from(
                data, at
            )
            if flags & FLAG_CHECK_IDS:
                shown = shown_id(bytes(data[at + BATCH_HEADER_SIZE : at + size]))
                if shown is not None:
                    found += ID_ENTRY.pack(self.hash(topic_id, shown), offset, queue, expiry_s(stored_at_ms, window_ms))
            at += padded(size)
        return bytes(found)

    def _add_table(self, now_s: int) -> None:
        """Add a table as large as all remembered ids, within bounds.

        So a look-up searches few tables, and each is a small part of a full window.
        """
        slots, wanted = SLOTS_MIN, max(self.count, self._expected)
        while slots * 3 < wanted * 4 and slots * 2 * TABLES_LEAST <= self._slots_max:
            slots *= 2
        while self._tables and self.size_bytes // SLOT_SIZE + slots > self._slots_max:
            self._drop_oldest(now_s)
        self._tables.append(_Table(slots))

    def _drop_oldest(self, now_s: int) -> None:
        oldest = self._tables.pop(0)
        if oldest.expires_s > now_s:
            self.forgotten += oldest.count

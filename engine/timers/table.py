"""Table of pending timers. The reference of _table.pyx and _load.pyx.

In both forms a timer keeps its cell while others come and go. So a scan from 0 to the end, in pieces and with changes in
between, returns each timer that is in the table all the time.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from engine.env.base import File
from engine.link.timer import parse
from engine.log.format import BATCH_HEADER_SIZE, CONTROL_TOPIC_ID, KIND_TIMER
from engine.log.segment.index import EntrySource
from engine.log.segment.native import BatchReader

TimerEntry = tuple[int, int, int, int]
"""(base of the segment, byte address in its file, due time, hash of topic and id)"""


def hash_id(topic_id: int, shown_id: bytes) -> int:
    """Return 32 bits that differ between processes, so that clients cannot choose ids that collide."""
    return (hash(shown_id) ^ topic_id * 0x9E3779B1) & 0xFFFFFFFF


class TimerTable:
    """Pending timers by due time, by id and by segment. See _table.pyx for what the methods promise."""

    def __init__(self, now_ms: int) -> None:
        self.cursor = now_ms
        self._entries: dict[tuple[int, int], tuple[int, int]] = {}
        self._cells: list[tuple[int, int] | None] = []
        self._cell_of: dict[tuple[int, int], int] = {}
        self._free: list[int] = []
        self._heap: list[tuple[int, int, int]] = []
        self._by_hash: dict[int, list[tuple[int, int]]] = {}
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def memory_bytes(self) -> int:
        """Estimated memory."""
        return 500 * len(self._entries)

    def insert(self, base: int, at: int, due_ms: int, hashed: int) -> None:
        """Add a timer."""
        self._entries[base, at] = (due_ms, hashed)
        if not self._free:
            self._free.append(len(self._cells))
            self._cells.append(None)
        cell = self._cell_of[base, at] = self._free.pop()
        self._cells[cell] = base, at
        heappush(self._heap, (due_ms, base, at))
        self._by_hash.setdefault(hashed, []).append((base, at))
        self._counts[base] = self._counts.get(base, 0) + 1

    def remove(self, base: int, at: int, hashed: int) -> bool:
        """Remove a timer; returns whether it was there."""
        if self._entries.pop((base, at), None) is None:
            return False
        cell = self._cell_of.pop((base, at))
        self._cells[cell] = None
        self._free.append(cell)
        found = self._by_hash[hashed]
        found.remove((base, at))
        if not found:
            del self._by_hash[hashed]
        self._counts[base] -= 1
        return True

    def find(self, hashed: int) -> list[tuple[int, int, int]]:
        """Return (base, byte address, due time) of the timers with that hash."""
        return [(base, at, self._entries[base, at][0]) for base, at in self._by_hash.get(hashed, ())]

    def pop_due(self, now_ms: int, limit: int) -> list[TimerEntry]:
        """Remove and return up to `limit` due timers, in the order of due time and position."""
        self.cursor = now_ms
        due: list[TimerEntry] = []
        while len(due) < limit and self._heap and self._heap[0][0] <= now_ms:
            due_ms, base, at = heappop(self._heap)
            found = self._entries.get((base, at))
            if found is not None and found[0] == due_ms:
                self.remove(base, at, found[1])
                due.append((base, at, due_ms, found[1]))
        if len(self._heap) > 2 * len(self._entries) + 1024:
            self._heap = [(due_ms, base, at) for (base, at), (due_ms, _) in self._entries.items()]
            heapify(self._heap)
        return due

    def next_at(self) -> int | None:
        """Return the latest time at which `pop_due` has work; None without pending timers."""
        while self._heap and self._entries.get(self._heap[0][1:], (None,))[0] != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pending_in(self, base: int) -> int:
        """Return the number of pending timers in the segment."""
        return self._counts.get(base, 0)

    def detach(self, base: int) -> None:
        """Forget a segment without pending timers."""
        self._counts.pop(base, None)

    def scan(self, start: int, limit: int, base: int = -1) -> tuple[list[TimerEntry], int]:
        """Return (the pending timers among `limit` cells from `start` on, the next start or -1 at the end)."""
        keys = self._cells[start : start + limit]
        found = [(*key, *self._entries[key]) for key in keys if key is not None and base in (-1, key[0])]
        return found, start + limit if start + limit < len(self._cells) else -1


def load(
    table: TimerTable, source: EntrySource, file: File, base: int, log_id: bytes, ended: list[int]
) -> tuple[list[int], int, int]:
    """Add a segment's timers to the table, except those at the sorted addresses `ended`.

    Returns: (hashes of timers that follow another, number of all timers, number of bytes that fail verification or cannot be
        read).
    """
    batches, gone = BatchReader(log_id), set(ended)
    following: list[int] = []
    total = lost = 0
    for _, at, size, _, _ in source.entries(CONTROL_TOPIC_ID, KIND_TIMER):
        try:
            batch = file.read_at(size, at)
        except OSError:
            lost += size
            continue
        if batches.check(batch, 0, size, base + at) != size:
            lost += size
            continue
        for address in _starts(batch):
            timer = parse(batch, address)
            total += 1
            if timer is None:
                lost += 1
            elif at + address not in gone:
                hashed = hash_id(timer.topic_id, timer.shown_id)
                table.insert(base, at + address, timer.due_ms, hashed)
                if timer.previous:
                    following.append(hashed)
    return following, total, lost


def _starts(batch: bytes) -> Iterator[int]:
    at = BATCH_HEADER_SIZE
    while at < len(batch):
        yield at
        at += 4 + int.from_bytes(batch[at : at + 4], "little")

"""The index of a segment in pure Python: the reference for _index.pyx, used where there is no compiler."""

from bisect import bisect_left, bisect_right

import google_crc32c

from engine.log.format import DIRECTORY_ENTRY, INDEX_ENTRY

Entry = tuple[int, int, int, int, int]
"""Base offset, byte address in the file, size, count, stored delta in ms."""


def crc32c(data: bytes | memoryview, crc: int = 0) -> int:
    """CRC-32C of `data`, continuing `crc`."""
    return google_crc32c.extend(crc, bytes(data))


def delta_of(stored_at_ms: int, created_ms: int) -> int:
    """Milliseconds after the segment's creation, limited to 32 bits."""
    return min(max(stored_at_ms - created_ms, 0), 0xFFFFFFFF)


class EntrySource:
    """Entries per queue, sorted by offset."""

    base: int
    created_ms: int

    def entries(self, topic_id: int, queue: int) -> list[Entry]:
        """The queue's entries."""
        raise NotImplementedError

    def first_offset(self, topic_id: int, queue: int) -> int | None:
        """Base offset of the queue's first batch in this segment, or None."""
        run = self.entries(topic_id, queue)
        return run[0][0] if run else None

    def committed_end(self, topic_id: int, queue: int, limit_at: int) -> int | None:
        """Offset after the queue's last batch that begins below `limit_at`; None when the queue has no batch here."""
        run = self.entries(topic_id, queue)
        if not run:
            return None
        count = bisect_left(run, limit_at, key=lambda entry: entry[1])
        return run[count - 1][0] + run[count - 1][3] if count else run[0][0]

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int, limit_at: int) -> int | None:
        """Base offset of the first batch stored at or after `at_ms` below the limit, or None."""
        run = self.entries(topic_id, queue)
        count = bisect_left(run, limit_at, key=lambda entry: entry[1])
        found = bisect_left(run, delta_of(at_ms, self.created_ms), 0, count, key=lambda entry: entry[4])
        return run[found][0] if found < count else None

    def locate(self, topic_id: int, queue: int, offset: int) -> int | None:
        """Byte address of the queue's last batch that begins at or below the offset, or None."""
        run = self.entries(topic_id, queue)
        found = bisect_right(run, offset, key=lambda entry: entry[0]) - 1
        return run[found][1] if found >= 0 else None

    def offset_within(
        self, topic_id: int, queue: int, size: int, limit_at: int, is_newest: bool
    ) -> tuple[int | None, int]:
        """Find the queue's oldest batch such that it and those after it have at most `size` bytes.

        Returns:
            (its base offset, the rest of the size). The offset is None when no batch below the limit fits; the
            queue's newest one always fits. Nothing is left when an older batch did not fit.
        """
        found = None
        for base_offset, at, batch_size, _, _ in reversed(self.entries(topic_id, queue)):
            if at >= limit_at:
                continue
            if batch_size > size and not is_newest:
                return found, 0
            size = max(size - batch_size, 0)
            found, is_newest = base_offset, False
        return found, size


class SegmentIndex(EntrySource):
    """The index of the segment being written."""

    def __init__(self, base: int, created_ms: int, expected: int = 0) -> None:
        self.base = base
        self.created_ms = created_ms
        self._runs: dict[tuple[int, int], list[Entry]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self.checked = 0

    @property
    def used(self) -> int:
        """Number of known queues."""
        return len(self._next)

    @property
    def entry_count(self) -> int:
        """Number of known batches."""
        return sum(map(len, self._runs.values()))

    def entries(self, topic_id: int, queue: int) -> list[Entry]:
        return self._runs.get((topic_id, queue), [])

    def claim(self, topic_id: int, queue: int, next_offset: int) -> None:
        """Note the queue's next offset, without a batch so far."""
        self._next.setdefault((topic_id, queue), next_offset)

    def add_entry(
        self, topic_id: int, queue: int, base_offset: int, at: int, size: int, count: int, stored_at_ms: int
    ) -> None:
        """Take a batch into the index."""
        entry = (base_offset, at, size, count, delta_of(stored_at_ms, self.created_ms))
        self._runs.setdefault((topic_id, queue), []).append(entry)
        self._next[topic_id, queue] = base_offset + count

    def raise_next(self, topic_id: int, queue: int, next_offset: int) -> None:
        """Have the queue continue at that offset at least."""
        self._next[topic_id, queue] = max(self._next.get((topic_id, queue), 0), next_offset)

    def take_back(self, topic_id: int, queue: int) -> None:
        """Undo the queue's latest add; its offsets are free again."""
        self._next[topic_id, queue] = self._runs[topic_id, queue].pop()[0]

    def committed_end(self, topic_id: int, queue: int, limit_at: int) -> int | None:
        run = self.entries(topic_id, queue)
        if run and run[-1][1] < limit_at:
            return self._next[topic_id, queue]  # after its last batch, or where it was raised to
        return super().committed_end(topic_id, queue, limit_at)

    def next_offset(self, topic_id: int, queue: int) -> int | None:
        """Offset of the queue's next record, staged ones included; None when the queue is not known here."""
        return self._next.get((topic_id, queue))

    def counters(self) -> "SegmentIndex":
        """A copy that knows each queue's next offset but no entries."""
        copy = SegmentIndex(self.base, self.created_ms)
        copy._next = dict(self._next)
        return copy

    def encode(self) -> tuple[int, int, bytes]:
        """(number of directory entries, number of entries, their bytes), sorted by topic id, queue and offset."""
        directory: list[bytes] = []
        entries: list[bytes] = []
        for key in sorted(key for key, run in self._runs.items() if run):
            run = self._runs[key]
            directory.append(DIRECTORY_ENTRY.pack(*key, len(entries), len(run), self._next[key]))
            entries += [INDEX_ENTRY.pack(*entry) for entry in run]
        return len(directory), len(entries), b"".join(directory + entries)


class SealedIndex(EntrySource):
    """The index file of a sealed segment, read in place. The caller has verified its checksum."""

    def __init__(
        self, base: int, created_ms: int, end: int, directory_count: int, entry_count: int, body: bytes | memoryview
    ) -> None:
        self.base = base
        self.created_ms = created_ms
        self.end = end
        self.directory_count = directory_count
        self.entry_count = entry_count
        self._body = memoryview(body)
        if len(self._body) < directory_count * DIRECTORY_ENTRY.size + entry_count * INDEX_ENTRY.size:
            raise ValueError("an index shorter than its counts")

    def _directory(self, at: int) -> tuple[int, int, int, int, int]:
        return DIRECTORY_ENTRY.unpack_from(self._body, at * DIRECTORY_ENTRY.size)

    def _entry(self, at: int) -> Entry:
        return INDEX_ENTRY.unpack_from(self._body, self.directory_count * DIRECTORY_ENTRY.size + at * INDEX_ENTRY.size)

    def entries(self, topic_id: int, queue: int) -> list[Entry]:
        at = bisect_left(range(self.directory_count), (topic_id, queue), key=lambda at: self._directory(at)[:2])
        if at == self.directory_count or self._directory(at)[:2] != (topic_id, queue):
            return []
        _, _, first, count, _ = self._directory(at)
        return (
            [self._entry(entry) for entry in range(first, first + count)] if first + count <= self.entry_count else []
        )

    def queues(self, start: int, count: int) -> list[tuple[int, int, int, int]]:
        """[(topic id, queue, first offset, next offset)] of up to `count` queues from the directory's entry `start`
        on."""
        found = []
        for at in range(start, min(start + count, self.directory_count)):
            topic_id, queue, first, _, next_offset = self._directory(at)
            found.append((topic_id, queue, self._entry(first)[0], next_offset))
        return found

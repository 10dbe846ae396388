"""Lookup terms of stored messages: ids as they are shown, and keys. Reference for _terms.pyx."""

import struct
from collections.abc import Iterator

from common.siphash import siphash
from common.wire.names import find_names
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, KIND_FIRED, KIND_MESSAGES, padded
from engine.log.lookup_index.merge import packed_blocks
from engine.log.segment.batch_reader import BatchReader
from engine.log.segment.ids import shown_id

FAMILY_ID = 1
HIGHEST = 0xFFFFFFFFFFFFFFFF


def term_of(record: bytes, family: int) -> bytes | None:
    """The id, as it is shown, or the key of a record (from its size field on); None when it has none."""
    return shown_id(record) if family == FAMILY_ID else find_names(record[21 if record[4] & 1 else 5 :])[1]


def term_hash(log_id: bytes, topic_id: int, name: bytes) -> int:
    """Hash under which a topic's message with that id or key is indexed."""
    k0, k1 = struct.unpack("<QQ", log_id)
    return int.from_bytes(siphash(struct.pack("<QQ", k0, k1 ^ topic_id), name)[:8], "little")


def records_with_term(batch: bytes, family: int, name: bytes) -> list[tuple[int, bytes]]:
    """[(number in the batch, record as stored)] of a whole batch's messages that have the term."""
    return [(number, record) for number, record in enumerate(_records(batch)) if term_of(record, family) == name]


def _records(batch: bytes) -> Iterator[bytes]:
    at = BATCH_HEADER_SIZE
    while at < len(batch):
        end = at + 4 + int.from_bytes(batch[at : at + 4], "little")
        yield batch[at:end]
        at = end


class BatchScanner:
    """Replaces a BatchReader's `scan` in a WindowScan: takes whole batches in order, up to the first bytes that are
    none."""

    def __init__(self, log_id: bytes, base: int) -> None:
        self._batches = BatchReader(log_id)
        self._base = base

    def _take(self, batch: bytes, at: int, topic_id: int, stored_at_ms: int) -> None:
        raise NotImplementedError

    def scan(
        self, index: object, buffer: bytes | memoryview, at: int, end: int, shift: int = 0
    ) -> tuple[int, list[int], int, int, int]:
        """As BatchReader.scan, except that the index stays as it is, and control batches and epochs are ignored.

        `shift` is the file's address at which the buffer begins; `at` and `end` are addresses in the file.
        """
        last = last_crc = 0
        while size := self._batches.check(buffer, at - shift, end - shift, self._base + at):
            last_crc, _, _, kind, _, _, topic_id, _, _, _, _, stored_at_ms = BATCH_HEADER.unpack_from(
                buffer, at - shift
            )
            if topic_id and kind in (KIND_MESSAGES, KIND_FIRED):
                self._take(bytes(buffer[at - shift : at - shift + size]), at, topic_id, stored_at_ms)
            last = at
            at += padded(size)
        return at, [], 0, last, last_crc


class SharedScan(BatchScanner):
    """Feeds one or two takers of one segment, and has the bytes read and verified once for both.

    Args:
        takers: at least one.
    """

    def __init__(self, log_id: bytes, base: int, *takers: BatchScanner) -> None:
        super().__init__(log_id, base)
        self._takers = takers

    def _take(self, batch: bytes, at: int, topic_id: int, stored_at_ms: int) -> None:
        for taker in self._takers:
            taker._take(batch, at, topic_id, stored_at_ms)


class TermCollector(BatchScanner):
    """Collects a segment's sorted entries in passes of bounded memory: each takes the lowest hashes that are left.

    Args:
        family: 1 ids, 2 keys.
        entries_max: per pass; more only when one hash alone has more.
    """

    def __init__(self, log_id: bytes, base: int, family: int, entries_max: int) -> None:
        super().__init__(log_id, base)
        self._log_id, self._family, self._entries_max = log_id, family, entries_max
        self._entries: list[tuple[int, int]] = []
        self._low, self._high = 0, HIGHEST
        self.oldest_ms, self.newest_ms = 1 << 62, -(1 << 62)

    def begin(self, low: int) -> None:
        """Take the hashes from `low` on, as far as there is room."""
        self._entries, self._low, self._high = [], low, HIGHEST

    def _take(self, batch: bytes, at: int, topic_id: int, stored_at_ms: int) -> None:
        self.oldest_ms = min(self.oldest_ms, stored_at_ms)
        self.newest_ms = max(self.newest_ms, stored_at_ms)
        for record in _records(batch):
            name = term_of(record, self._family)
            if name is None:
                continue
            hashed = term_hash(self._log_id, topic_id, name)
            if self._low <= hashed <= self._high:
                self._add(hashed, at)

    def _add(self, hashed: int, at: int) -> None:
        if len(self._entries) >= self._entries_max:
            self._sort()
            self._cut()
            if hashed > self._high:
                return
        self._entries.append((hashed, at))

    def _cut(self) -> None:
        """Leave the upper half of the sorted entries to the next pass; equal hashes stay together."""
        border = self._entries[len(self._entries) // 2][0]
        kept = sum(hashed < border for hashed, _ in self._entries)
        self._high = border - 1
        if not kept:
            kept = sum(hashed == border for hashed, _ in self._entries)
            self._high = border
        del self._entries[kept:]
        while len(self._entries) * 4 > self._entries_max * 3:
            self._entries_max *= 2

    def _sort(self) -> None:
        self._entries = sorted(set(self._entries))

    def finish(self) -> tuple[int, int | None]:
        """Sort what this pass took. Returns (number of entries, hash at which the next pass begins or None)."""
        self._sort()
        return len(self._entries), None if self._high == HIGHEST else self._high + 1

    def blocks(self, first: int, count: int, seed: bytes, number: int) -> bytes:
        """Up to `count` blocks of a file, with this pass's entries from `first` on; the first block has that number."""
        return packed_blocks(self._entries, first, count, seed, number)


class TermSearcher(BatchScanner):
    """Finds the batches in which a message of a topic has a term; for segments without a lookup file.

    Args:
        from_ms, to_ms: stored at or after, and not after.
    """

    def __init__(
        self, log_id: bytes, base: int, family: int, topic_id: int, name: bytes, from_ms: int, to_ms: int
    ) -> None:
        super().__init__(log_id, base)
        self._family, self._topic_id, self._name = family, topic_id, name
        self._from_ms, self._to_ms = from_ms, to_ms
        self._found: list[int] = []

    def _take(self, batch: bytes, at: int, topic_id: int, stored_at_ms: int) -> None:
        wanted = topic_id == self._topic_id and self._from_ms <= stored_at_ms <= self._to_ms
        if wanted and records_with_term(batch, self._family, self._name):
            self._found.append(at)

    def found(self) -> list[int]:
        """Addresses of the batches found since the last call, in order."""
        found, self._found = self._found, []
        return found

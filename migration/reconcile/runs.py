"""Rows of one side on disk, sorted in runs, and read again by ranges of ids: any number of rows in bounded memory."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from migration.reconcile.native import ordered
from migration.reconcile.rows import ROW_SIZE

RUN_BYTES = 64 << 20
"""Memory of a drill-down. A run has a quarter of it, as it is copied while it is sorted."""
ID_END = 1 << 64


class RowRuns:
    """Takes rows in any order; `close` removes its files.

    Args:
        folder: for temporary files, of 32 bytes per row.
        run_bytes: of one run.
    """

    def __init__(self, folder: Path | None = None, run_bytes: int = RUN_BYTES // 4) -> None:
        self._folder, self._run_bytes = folder, run_bytes
        self._waiting: list[bytes] = []
        self._size = 0
        self._runs: list[_SortedRun] = []
        self.rows = 0

    def add(self, rows: bytes) -> None:
        """Take rows. Writes to disk now and then; raises OSError."""
        if not rows:
            return
        self._waiting.append(rows)
        self._size += len(rows)
        self.rows += len(rows) // ROW_SIZE
        if self._size >= self._run_bytes:
            self._write()

    def _write(self) -> None:
        data = b"".join(self._waiting)
        self._waiting, self._size = [], 0
        data = ordered(data)
        with tempfile.TemporaryFile(prefix="penstock-reconcile-", dir=self._folder) as file:
            file.write(data)
            file.flush()
            self._runs.append(_SortedRun(os.dup(file.fileno()), len(data) // ROW_SIZE))

    def finish(self) -> None:
        """Write what waits; nothing is added after it."""
        if self._waiting:
            self._write()

    def size(self, low: int, high: int) -> int:
        """Bytes of the rows whose id's hash is in low..high, `high` excluded."""
        return sum(run.size(low, high) for run in self._runs)

    def between(self, low: int, high: int, bytes_max: int | None = None) -> bytes:
        """These rows in order. `bytes_max`: at most so many of each run, its first ones."""
        return ordered(b"".join(run.between(low, high, bytes_max) for run in self._runs))

    def chunks(self, low: int, high: int, bytes_max: int) -> Iterator[bytes]:
        """These rows, run by run, in parts of a multiple of ROW_SIZE."""
        for run in self._runs:
            yield from run.chunks(low, high, bytes_max // ROW_SIZE * ROW_SIZE)

    def close(self) -> None:
        for run in self._runs:
            os.close(run.descriptor)
        self._runs = []


class _SortedRun(NamedTuple):
    descriptor: int
    rows: int

    def _bounds(self, low: int, high: int) -> tuple[int, int]:
        return self._first_at(low), self._first_at(high)

    def size(self, low: int, high: int) -> int:
        first, end = self._bounds(low, high)
        return (end - first) * ROW_SIZE

    def between(self, low: int, high: int, bytes_max: int | None) -> bytes:
        first, end = self._bounds(low, high)
        size = (end - first) * ROW_SIZE
        return _read_exactly(self.descriptor, first * ROW_SIZE, size if bytes_max is None else min(size, bytes_max))

    def chunks(self, low: int, high: int, size_max: int) -> Iterator[bytes]:
        first, end = self._bounds(low, high)
        for at in range(first * ROW_SIZE, end * ROW_SIZE, size_max):
            yield _read_exactly(self.descriptor, at, min(size_max, end * ROW_SIZE - at))

    def _first_at(self, shown: int) -> int:
        """The index of the first row whose hash is not below."""
        if shown >= ID_END:
            return self.rows
        low, high = 0, self.rows
        while low < high:
            middle = (low + high) // 2
            if int.from_bytes(_read_exactly(self.descriptor, middle * ROW_SIZE, 8), "big") < shown:
                low = middle + 1
            else:
                high = middle
        return low


def _read_exactly(descriptor: int, at: int, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = os.pread(descriptor, left, at)
        if not part:
            raise OSError(f"a temporary file of the comparison ends at byte {at}")
        parts.append(part)
        at, left = at + len(part), left - len(part)
    return b"".join(parts)


class IdSlice(NamedTuple):
    """Ids of low..high whose rows fit into memory, or a single id that is too often there."""

    low: int
    high: int
    fits: bool


def slices(sides: tuple[RowRuns, RowRuns], bytes_max: int) -> Iterator[IdSlice]:
    """All ids in slices that have rows, in order."""
    waiting = [(0, ID_END)]
    while waiting:
        low, high = waiting.pop()
        size = sum(side.size(low, high) for side in sides)
        if size == 0:
            continue
        if size <= bytes_max or high - low == 1:
            yield IdSlice(low, high, size <= bytes_max)
            continue
        middle = (low + high) // 2
        waiting += [(middle, high), (low, middle)]

"""The sorted key-value store under the view of topics, progress and segment directories.

It holds nothing that the log could not rebuild, so writes skip RocksDB's own log. After a crash, writes since the last
`flush()` may be lost, all or some of them. Writers have to be correct in each of these cases.
"""

import errno
import os
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.unpatched import original
from engine.env.manifest import check_manifest
from engine.errors import StoreDamagedError

PROBE_BYTES = 1 << 20
"""Size of the file that shows whether the disk takes writes again."""
OPEN_TRIES, OPEN_PAUSE_S = 50, 0.01


class Store(ABC):
    """Sorted map of bytes to bytes. Safe for two threads, of which one writes."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    @abstractmethod
    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes] = ()) -> None:  # type: ignore[assignment]
        """Apply all entries or, after a crash, none. Blocks for about 2 microseconds per entry."""

    @abstractmethod
    def flush(self) -> None:
        """Make all writes durable. Blocks."""

    @abstractmethod
    def last_at_or_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The entry with the greatest key that is not above `key`."""

    @abstractmethod
    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with start <= key < end, in order."""

    @abstractmethod
    def close(self) -> None:
        """Release files and memory; writes since the last flush may be lost."""


def check_store(folder: str) -> None:
    """Verify the MANIFEST that the file CURRENT of a RocksDB folder names. A missing file is left to RocksDB.

    Raises:
        StoreDamagedError: a record does not verify.
    """
    try:
        path = Path(folder) / (Path(folder) / "CURRENT").read_text("ascii").strip()
        data = path.read_bytes()
    except (OSError, ValueError):
        return
    check_manifest(str(path), data)


def _probe(folder: str) -> None:
    """Write, sync, read and remove a small file in the folder. Raises OSError."""
    path = os.path.join(folder, "probe")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        os.pwrite(fd, bytes(PROBE_BYTES), 0)
        os.fdatasync(fd)
        os.pread(fd, PROBE_BYTES, 0)
    finally:
        os.close(fd)
        os.unlink(path)


def open_database(rocks: Any, path: str, options: Any, **more: Any) -> Any:
    """Open the database whose only column family has these options.

    Without the list of column families, rocksdict looks for it in the newest OPTIONS file. That has no checksum, and
    one flipped bit of it crashes the process or refuses the start.
    """
    return rocks.Rdict(path, options, column_families={"default": options}, **more)


class RocksStore(Store):
    """RocksDB with small buffers.

    Every method may raise StoreDamagedError, or OSError when the disk is full or fails. After an error of a background
    write RocksDB refuses all further writes. So the first write after an error opens the database again, and repeats
    what was written since the last flush; reads in another thread block meanwhile.
    """

    def __init__(self, path: str, cache_bytes: int) -> None:
        import rocksdict  # 20 MB that simulations and offline tools do not need

        check_store(path)
        self._rocks = rocksdict
        self._path = path
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(8 << 20)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(2)
        options.set_max_open_files(64)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(rocksdict.Cache(max(cache_bytes, 1 << 16)))
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]  # a property; the stub says method
        self._options = options
        self._lock = original("_thread", "allocate_lock")()  # a worker thread writes, the loop reads
        self._unflushed: list[tuple[list[tuple[bytes, bytes]], list[bytes]]] = []
        self._failed = False
        with self._errors():
            self._database: Any = open_database(rocksdict, path, options)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translates exceptions. rocksdict raises plain Exceptions, which only their text tells apart.

        A missing file is damage, too: one that a flipped bit in CURRENT names, or a deleted one.
        """
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            is_lost = "No such file" in str(error) and os.path.exists(f"{self._path}/CURRENT")
            if is_lost or "orruption" in str(error):
                raise StoreDamagedError(self._path, 0, 0, str(error)) from error
            raise OSError(errno.EIO, f"RocksDB: {error}", self._path) from error

    def get(self, key: bytes) -> bytes | None:
        with self._errors():
            return self._current().get(key)

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes] = ()) -> None:  # type: ignore[assignment]
        with self._lock:
            self._reopen_failed()
            self._write(puts, deletes)
            self._unflushed.append((puts, deletes))

    def flush(self) -> None:
        with self._lock:
            self._reopen_failed()
            count = len(self._unflushed)
        with self._errors(), self._noting_failure():
            self._current().flush(True)
        with self._lock:
            del self._unflushed[:count]

    def _write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key, value in puts:
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)
        with self._errors(), self._noting_failure():
            self._database.write(batch, self._write_options)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._failed = True
            raise

    def _reopen_failed(self) -> None:
        """After an error, open the database again once the disk takes writes. Until then reads go on."""
        if not self._failed:
            return
        _probe(self._path)
        self._database = None  # closed as soon as no read in another thread uses it
        self._database = self._open_unused()
        for puts, deletes in self._unflushed:
            self._write(puts, deletes)
        self._failed = False

    def _open_unused(self) -> Any:
        """Open the database once its last user has gone; try for OPEN_TRIES × OPEN_PAUSE_S."""
        for _ in range(OPEN_TRIES):
            try:
                return open_database(self._rocks, self._path, self._options)
            except Exception as error:
                last = error
                original("time", "sleep")(OPEN_PAUSE_S)
        raise OSError(errno.EIO, f"RocksDB: {last}", self._path)

    def _current(self) -> Any:
        """The open database; blocks while it is opened again."""
        database = self._database
        if database is None:
            with self._lock:
                database = self._database
        if database is None:
            raise OSError(errno.EIO, "RocksDB: not open, see the error before", self._path)
        return database

    def last_at_or_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        with self._errors():
            found = self._current().iter()
            found.seek_for_prev(key)
            found.status()
            return (found.key(), found.value()) if found.valid() else None

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._errors():
            found = self._current().iter()
            found.seek(start)
            while found.valid():
                key = found.key()
                if key >= end:
                    return
                yield key, found.value()
                found.next()
            found.status()

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()


class MemoryStore(Store):
    """A store in memory. `disk` outlives the object and holds the flushed entries."""

    def __init__(self, disk: dict[bytes, bytes]) -> None:
        self.disk = disk
        self._values = dict(disk)
        self._keys = sorted(disk)
        self.unflushed: list[tuple[list[tuple[bytes, bytes]], list[bytes]]] = []

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes] = ()) -> None:  # type: ignore[assignment]
        for key, value in puts:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value
        for key in deletes:
            if self._values.pop(key, None) is not None:
                self._keys.pop(bisect_left(self._keys, key))
        self.unflushed.append((list(puts), list(deletes)))

    def flush(self) -> None:
        for puts, deletes in self.unflushed:
            self.disk.update(puts)
            for key in deletes:
                self.disk.pop(key, None)
        self.unflushed.clear()

    def last_at_or_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            at -= 1
        return (self._keys[at], self._values[self._keys[at]]) if at >= 0 else None

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]:
            yield key, self._values[key]

    def close(self) -> None:
        pass

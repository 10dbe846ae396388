"""The commit log of one engine node: what colleagues above it call."""

from collections.abc import Callable, Iterable, Iterator

from engine.config import LogConfig
from engine.env import Env
from engine.log.types import Piece, Topic


def open_log(env: Env, directory: str, config: LogConfig) -> "Log":
    """Take the directory's lock, recover what is in it (creating it when missing) and return the log, ready to serve.

    Blocks for as long as one segment takes to scan. Raises LockedError, VersionError, BehindCheckpointError, CorruptionError.
    """
    raise NotImplementedError


class Log:
    """Appends and reads batches. All methods belong to the loop's thread; only what says so blocks."""

    log_id: bytes
    epoch: int
    appender: object
    """Native form: `engine.log._append.Appender`, for cimport; the twin has the same `append`."""

    @property
    def end_position(self) -> int:
        """Bytes below are in the page cache and readable."""
        raise NotImplementedError

    @property
    def durable_position(self) -> int:
        """Bytes below are synced."""
        raise NotImplementedError

    def append(self, batches: bytes | bytearray | memoryview, count: int, now_ms: int) -> list[tuple[int, int]]:
        """Append `count` batches (each starting at a multiple of 8 in `batches`) and return (code, base offset) for each.

        0 is stored, 100 malformed or no such queue, 101 larger than a segment, 102 unknown topic id, 203 no room on the disk; a refused
        batch does not stop the others, except that one with a wrong size hides what follows it. Bytes are in the page cache on return.
        Raises DiskFullError when nothing at all could be written.
        """
        raise NotImplementedError

    def when_durable(self, position: int, callback: Callable[[], None]) -> None:
        """Call `callback()` once all bytes below `position` are synced: at once when they are, else from the loop."""
        raise NotImplementedError

    def create_topics(self, wanted: Iterable[tuple[str, int]]) -> list[Topic]:
        """Find or create each (name, queues), in order. A topic that exists with fewer queues grows, one with more stays as it is.

        In the page cache on return; use `when_durable(end_position, …)` before telling anybody who must not lose it.
        """
        raise NotImplementedError

    def topic(self, name: str) -> Topic | None:
        """The topic of that name, or None."""
        raise NotImplementedError

    def topic_by_id(self, topic_id: int) -> Topic | None:
        """The topic of that id, or None."""
        raise NotImplementedError

    def topics(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[Topic]:
        """Up to `limit` topics in the byte order of their names, those with the prefix and behind `after`."""
        raise NotImplementedError

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        """(first offset, end offset): what can be read is first <= offset < end. Raises UnknownTopicError."""
        raise NotImplementedError

    def read(self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int) -> list[Piece]:
        """Records from `offset` on, verified; the first record is given even when it is larger than `max_bytes`. Empty at the end.

        Reads the page cache or the disk, so a cold read blocks. Raises OffsetOutOfRangeError, CorruptionError (with `next_offset` behind the
        damage) when the record at `offset` cannot be served; damage further on only ends the answer early.
        """
        raise NotImplementedError

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int:
        """Offset of the first record stored at or after `at_ms`, else the end offset. Exact while the clock does not step back."""
        raise NotImplementedError

    def watch(self, topic_id: int, queue: int) -> None:
        """Arm the queue: its next append puts it into `take_woken()` once, and disarms it."""
        raise NotImplementedError

    def take_woken(self) -> list[tuple[int, int]]:
        """The armed queues that got records since the last call, as (topic id, queue). Their records can be read now."""
        raise NotImplementedError

    def put_progress(self, key: bytes, value: bytes) -> None:
        """Append a PROGRESS record; an empty value removes the key. In the page cache on return."""
        raise NotImplementedError

    def progress(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All (key, value) with the prefix, in key order."""
        raise NotImplementedError

    def checkpoint(self) -> None:
        """Sync, and bring the view in RocksDB up to date. Blocks."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is staged, sync, release the lock. Blocks."""
        raise NotImplementedError

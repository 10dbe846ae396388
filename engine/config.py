"""Settings of the engine's log, each with the cost of a larger and a smaller value."""

from dataclasses import dataclass

from engine.errors import EngineConfigError

_MIB = 1 << 20


@dataclass(frozen=True)
class LogConfig:
    """Settings of the commit log. `checked()` before use."""

    segment_bytes: int = 256 * _MIB
    """Size of a segment file, a multiple of 4096. More makes recovery longer (one segment is scanned) and retention
    coarser; less means more files and a smaller largest batch. Two segments are allocated ahead of their use."""

    queues_max: int = 10_000
    """Maximum number of queues per topic. It only guards against mistakes: an unused queue costs nothing."""

    pending_max: int = 50_000
    """Changed topics and progress keys kept in memory before a checkpoint is written ahead of the next sealed segment.
    Less writes a hot key more often, more costs about 300 bytes each."""

    start_wait_ms: int = 60_000
    """Time that a start waits in all for sectors that the disk cannot read; then they count as damage. Less starts
    sooner on a bad disk, and loses what an outage of its path hides for a moment."""

    counters_max: int = 2_000_000
    """Queues of sealed segments whose next offset stays in memory, 32 to 64 bytes each. Less means a look-up in RocksDB
    (some 10 µs) for the first record of such a queue in each segment."""

    id_window_bytes_max: int = 256 * _MIB
    """Maximum memory for the ids that sends are checked against: 32 bytes each, in tables at most three quarters full.
    Allocated as needed. With less, ids are forgotten before the topic's window has passed when more of them arrive."""

    sealed_open_max: int = 64
    """Sealed segments kept open for readers, two file descriptors each. Less re-opens files when readers are spread
    over old data."""

    store_cache_bytes: int = 8 * _MIB
    """Block cache of RocksDB. More makes the first access to cold queues faster."""

    retention_ms: int = 72 * 3_600_000
    """Age of its newest message at which a segment is deleted, unless a topic in it has a retention of its own. 0:
    never. More needs more disk."""

    log_bytes_max: int = 0
    """Size of the log, side files included, above which the oldest segments are deleted whatever their age. 0: no
    limit."""

    delete_interval_ms: int = 1000
    """Least time between two deletions of segments. Less frees a full disk sooner, but delays writes to the file
    system."""

    disk_warn_percent: int = 85
    disk_delete_percent: int = 90
    disk_refuse_percent: int = 95
    """Disk usage at which the log warns, at which the oldest segments are deleted before their retention ends, and at
    which appends are refused. Higher uses more of the disk and leaves less for other programs."""

    disk_reserve_bytes: int = 512 * _MIB
    """Free space below which appends are refused; below twice as much, the oldest segments are deleted. It has to hold
    a new segment and what RocksDB writes meanwhile."""

    cold_distance_bytes: int = 256 * _MIB
    """Distance from the end of the log from which on sealed segments are cold: read ahead, in a thread, within a
    budget. More lets readers that are a little late use more of the page cache; less makes them wait for the thread.
    0: nothing is cold."""

    cold_bytes_a_second: int = 100 * _MIB
    """Rate of cold reads. More lets consumers that are far behind catch up sooner, less leaves more of the disk and the
    processors to writes."""

    cold_cache_bytes: int = 128 * _MIB
    """Part of the page cache that cold reads may hold. A consumer whose queues lie further apart reads the same bytes
    again."""

    look_up: tuple[str, ...] = ("id", "key")
    """Terms for which lookup files are made: "id", "key". Each takes 12 bytes of disk per message that has one, and a
    tenth of a microsecond of a thread. Without it a look-up reads messages. Files of families that are left
    out are removed."""

    look_up_bytes_a_second: int = 32 * _MIB
    """Pace at which a sealed segment is read to make lookup files. More makes them sooner, less leaves more to the
    log."""

    def faults(self) -> list[str]:
        """All violated rules at once; empty when there are none."""
        found = []
        if not 4096 <= self.segment_bytes <= 2048 * _MIB or self.segment_bytes % 4096:
            found.append("segment_bytes: multiple of 4096 in 4096..2147483648")
        if not 1 <= self.queues_max <= 1_000_000:
            found.append("queues_max: 1..1000000")
        if self.start_wait_ms < 0:
            found.append("start_wait_ms: at least 0")
        if self.pending_max < 1:
            found.append("pending_max: at least 1")
        if self.id_window_bytes_max < _MIB:
            found.append(f"id_window_bytes_max: at least {_MIB}")
        if self.counters_max < 0:
            found.append("counters_max: at least 0")
        if self.sealed_open_max < 1:
            found.append("sealed_open_max: at least 1")
        if self.store_cache_bytes < 0:
            found.append("store_cache_bytes: at least 0")
        if any(name not in ("id", "key") for name in self.look_up) or len(set(self.look_up)) < len(self.look_up):
            found.append("look_up: id, key or both, each at most once")
        if self.look_up_bytes_a_second < _MIB:
            found.append(f"look_up_bytes_a_second: at least {_MIB}")
        return found + self._space_faults() + self._cold_faults()

    def _space_faults(self) -> list[str]:
        found = [
            f"{name}: at least 0"
            for name in ("retention_ms", "log_bytes_max", "disk_reserve_bytes")
            if getattr(self, name) < 0
        ]
        if not 1 <= self.disk_warn_percent <= self.disk_delete_percent <= self.disk_refuse_percent <= 100:
            found.append("disk_warn_percent, disk_delete_percent, disk_refuse_percent: 1..100, each at most the next")
        if not 10 <= self.delete_interval_ms <= 3_600_000:
            found.append("delete_interval_ms: 10..3600000")
        return found

    def _cold_faults(self) -> list[str]:
        found = []
        if self.cold_distance_bytes < 0:
            found.append("cold_distance_bytes: at least 0")
        if self.cold_bytes_a_second < _MIB:
            found.append(f"cold_bytes_a_second: at least {_MIB}")
        if self.cold_cache_bytes < 4 * _MIB:
            found.append(f"cold_cache_bytes: at least {4 * _MIB}")
        return found

    def checked(self) -> "LogConfig":
        """Return itself. Raises EngineConfigError with all faults."""
        found = self.faults()
        if found:
            raise EngineConfigError(found)
        return self

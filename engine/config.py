"""Settings of the engine's log, each with what more and what less of it costs."""

from dataclasses import dataclass

from engine.errors import ConfigError

_MIB = 1 << 20


@dataclass(frozen=True)
class LogConfig:
    """Settings of the commit log. `checked()` before use."""

    segment_bytes: int = 256 * _MIB
    """Size of a segment file. More makes recovery longer (one segment is scanned) and retention coarser; less means
    more files, and a smaller largest batch. Two segments are allocated ahead of their use. Multiple of 4096."""

    queues_max: int = 10_000
    """Queues a topic may have. A bound on mistakes only: an unused queue costs nothing."""

    pending_max: int = 50_000
    """Topics and progress keys kept in memory before they are written to the view ahead of the next sealed segment.
    Less writes a hot key more often, more costs about 300 bytes each."""

    counters_max: int = 2_000_000
    """Queues of sealed segments whose next offset stays in memory, at 32 to 64 bytes each. Less means a look-up in RocksDB (some 10 µs)
    for the first record of such a queue in each segment."""

    id_window_bytes_max: int = 256 * _MIB
    """Memory for the ids that sends are checked against, 32 bytes each in tables at most three quarters full; taken as it is needed. Less
    makes ids be forgotten before the topic's window has passed when more of them come."""

    sealed_open_max: int = 64
    """Sealed segments kept open for readers, two file descriptors each.

    Less re-opens files when readers are spread over old data.
    """

    store_cache_bytes: int = 8 * _MIB
    """Block cache of RocksDB. More makes first touches of cold queues quicker."""

    retention_ms: int = 72 * 3_600_000
    """How old the newest message of a segment gets before the segment is deleted, unless a topic in it has a retention of
    its own. 0: for ever. More needs more disk."""

    log_bytes_max: int = 0
    """Segments beyond so many bytes are deleted whatever their age, oldest first; what lies beside them counts, too. 0: no such limit."""

    delete_interval_ms: int = 1000
    """Least time between two deletions of segments. Less frees a full disk sooner, but takes the file system away from writes."""

    disk_warn_percent: int = 85
    disk_delete_percent: int = 90
    disk_refuse_percent: int = 95
    """How full the disk is when the log says so, when the oldest segments are deleted before their time, and when appends are refused.
    Higher uses more of the disk, and leaves less for whoever else writes to it."""

    disk_reserve_bytes: int = 512 * _MIB
    """Appends are refused, too, when less than this is free, and segments deleted when less than twice as much is. It has to
    hold a new segment and what RocksDB writes meanwhile."""

    cold_distance_bytes: int = 256 * _MIB
    """Sealed segments that end so far behind the end of the log are read as cold: ahead, in a thread, within a budget. More lets
    readers that are a little late take room from the page cache; less makes them wait for the thread. 0: nothing is cold."""

    cold_bytes_a_second: int = 100 * _MIB
    """What cold reads may take from the disk. More lets sleepers catch up sooner, less leaves more of the disk, and of the processors
    that everything read goes through, to those who write."""

    cold_cache_bytes: int = 128 * _MIB
    """How much of the page cache cold reads may hold. Where a sleeper's queues lie further apart, it reads the same bytes again."""

    look_up: tuple[str, ...] = ("id", "key")
    """By what messages can be looked up through files beside sealed segments: "id", "key". Each takes 12 bytes of disk a message that has
    one, and a tenth of a microsecond of a thread; without it a look-up reads messages. Files of what is left out are removed."""

    look_up_bytes_a_second: int = 32 * _MIB
    """The pace at which a sealed segment is read to make such a file. More makes them sooner, less leaves more to the log."""

    def faults(self) -> list[str]:
        """Every violated rule at once; empty when all is well."""
        found = []
        if not 4096 <= self.segment_bytes <= 2048 * _MIB or self.segment_bytes % 4096:
            found.append("segment_bytes: multiple of 4096 in 4096..2147483648")
        if not 1 <= self.queues_max <= 1_000_000:
            found.append("queues_max: 1..1000000")
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
            found.append("look_up: of id and key, each once at most")
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
            found.append("disk_warn_percent, disk_delete_percent, disk_refuse_percent: 1..100, none above the next")
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
        """Itself. Raises ConfigError with all faults."""
        found = self.faults()
        if found:
            raise ConfigError(found)
        return self

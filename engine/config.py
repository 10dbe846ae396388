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

    sealed_open_max: int = 64
    """Sealed segments kept open for readers, two file descriptors each.

    Less re-opens files when readers are spread over old data.
    """

    store_cache_bytes: int = 8 * _MIB
    """Block cache of RocksDB. More makes first touches of cold queues quicker."""

    def faults(self) -> list[str]:
        """Every violated rule at once; empty when all is well."""
        found = []
        if not 4096 <= self.segment_bytes <= 2048 * _MIB or self.segment_bytes % 4096:
            found.append("segment_bytes: multiple of 4096 in 4096..2147483648")
        if not 1 <= self.queues_max <= 1_000_000:
            found.append("queues_max: 1..1000000")
        if self.pending_max < 1:
            found.append("pending_max: at least 1")
        if self.counters_max < 0:
            found.append("counters_max: at least 0")
        if self.sealed_open_max < 1:
            found.append("sealed_open_max: at least 1")
        if self.store_cache_bytes < 0:
            found.append("store_cache_bytes: at least 0")
        return found

    def checked(self) -> "LogConfig":
        """Itself. Raises ConfigError with all faults."""
        found = self.faults()
        if found:
            raise ConfigError(found)
        return self

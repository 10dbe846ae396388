"""Effect of a cold reader on appends, while retention deletes.

Question: p50, p99, p99.9 and the longest of appends (16 batches of one 128-byte message, one call per 2 ms, on one
thread with the reader, as in the engine), alone; with one reader that drains the log's oldest segments at the same time
as retention deletes others; and the same with cold reads switched off (`cold_distance_bytes=0`). Settings: 64 MiB
segments, 1 GiB of messages dropped from the page cache before (also those near the end, which an engine would have
there), 16 topics of 8 queues, no sync. Excluded: network, pull. On a busy machine only the longest read in the loop can
be compared. Run: `python -m bench.cold_reader [MIB]`; one line per case.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import gevent

from bench.log import QUEUES, TOPICS, frame
from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.log import Log, open_log

MIB = 1 << 20
SEGMENT = 64 * MIB
EVERY_S = 0.002
SECONDS = 10.0
READ_BYTES = 256 << 10


def fill(log: Log, size: int) -> None:
    """Write `size` bytes, in batches of 50."""
    frames = [frame(16, 50, i * 16) for i in range(64)]
    calls = 0
    while log.end_position < size:
        log.append(frames[calls & 63], 16, time.time_ns() // 1_000_000)
        calls += 1


def drop_cache(directory: str) -> None:
    """Drop all segments from the page cache. The log is closed, so they are synced."""
    for entry in os.scandir(f"{directory}/log"):
        fd = os.open(entry.path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def drain(log: Log) -> Iterator[int]:
    """Read all queues from the first record on, round robin; yield the bytes of each read."""
    queues = [(topic, queue) for topic in range(1, TOPICS + 1) for queue in range(QUEUES)]
    at = {key: log.bounds(*key)[0] for key in queues}
    while True:
        for key in queues:
            at[key] = max(at[key], log.bounds(*key)[0])
            size = 0
            for piece in log.read(*key, at[key], 10_000, READ_BYTES):
                at[key] = piece.first_offset + piece.count
                size += len(piece.records)
            yield size


def run(name: str, directory: str, config: LogConfig, *, reads: bool, deletes: bool) -> None:
    """Append at a fixed rate for SECONDS, reading in the time between, and print what the appends took."""
    log = open_log(RealEnv(), directory, config)
    one, took, read_bytes, held_s = frame(16, 1, 0), [], 0, 0.0
    reader, next_step = drain(log), 0.0
    started = time.perf_counter()
    due = started
    while due < started + SECONDS:
        while (now := time.perf_counter()) < due:
            if deletes and now >= next_step:
                next_step = now + log.retention.step() / 1000
            if reads:
                log.take_woken()
                size = next(reader)
                held_s = max(held_s, time.perf_counter() - now)
                read_bytes += size
                if size:
                    gevent.sleep(0)  # as in an engine: each pull is one turn of the loop, and the loop releases the GIL
                    continue
            gevent.sleep(0.0002)
        gevent.sleep(0)
        log.append(one, 16, time.time_ns() // 1_000_000)
        # From its due time: delays of the loop count.
        took.append(time.perf_counter() - due)
        due += EVERY_S
    took.sort()
    figures = ", ".join(f"{label} {took[int(len(took) * part)] * 1000:.2f}" for label, part in
                        (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)))  # fmt: skip
    print(
        f"{name}: {figures}, max {took[-1] * 1000:.2f} ms; longest read in the loop {held_s * 1000:.1f} ms; "
        f"read {read_bytes / SECONDS / 1e6:.0f} MB/s, "
        f"{log.retention.deleted_segments} segments deleted",
        flush=True,
    )
    log.close()


def main() -> None:
    """Run all cases, each on its own log."""
    size = int(sys.argv[1]) * MIB if len(sys.argv) > 1 else 1024 * MIB
    cases: tuple[tuple[str, dict[str, Any], bool, bool], ...] = (
        ("alone", {}, False, False),
        ("reader and deletion, cold reads off", {"cold_distance_bytes": 0}, True, True),
        ("reader and deletion, cold reads on", {"cold_distance_bytes": 128 * MIB}, True, True),
    )
    for name, settings, reads, deletes in cases:
        directory = tempfile.mkdtemp(prefix="penstock-bench-")
        try:
            log = open_log(RealEnv(), directory, LogConfig(segment_bytes=SEGMENT))
            log.create_topics((f"topic-{i}", QUEUES) for i in range(TOPICS))
            fill(log, size)
            log.close()
            drop_cache(directory)
            config = LogConfig(segment_bytes=SEGMENT, log_bytes_max=size // 2, disk_reserve_bytes=0, **settings)
            run(name, directory, config, reads=reads, deletes=deletes)
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()

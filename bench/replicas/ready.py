"""Start of `penstock up --replicas 2` on an empty directory.

Question: how soon does it serve, and how much memory do its processes take together?
Settings: five starts (times --scale), the page cache warm. Ready is the moment of the ready file, counted from the
    start of `up`. Memory is the sum of the processes' RSS when both brokers are in sync.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench import instance
from bench.figures import Figure
from bench.replicas.group import group_of
from bench.servers import rss_bytes

STARTS = 5
READY_S_MAX, MEMORY_MB_MAX = 4.0, 450.0


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    ready_s, in_sync_s, memory_mb = [], [], []
    for number in range(max(1, round(STARTS * scale))):
        say(f"ready: start {number + 1}")
        began = time.monotonic()
        with instance.own("--replicas", "2") as both, group_of(both) as group:
            ready_s.append(time.monotonic() - began)
            group.wait_in_sync()
            in_sync_s.append(time.monotonic() - began)
            memory_mb.append(sum(rss_bytes(Path(f"/proc/{pid}")) for pid in both.pids.values()) / 1e6)
    return [
        Figure("ready, median", statistics.median(ready_s), "s"),
        Figure("ready, slowest", max(ready_s), "s", most=READY_S_MAX),
        Figure("both brokers in sync, slowest", max(in_sync_s), "s"),
        Figure("memory of all processes, largest", max(memory_mb), "MB", most=MEMORY_MB_MAX),
    ]

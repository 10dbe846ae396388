"""A slave that lacks gigabytes copies them from an otherwise idle master.

Question: how many MB of log per second does a slave copy, from nothing and from where it was stopped?
Settings: 4 GiB (times --scale) in messages of 2 KiB, 16 topics × 8 queues. First they are written by `penstock up`,
    which is then started again with --replicas 2: the new slave has an empty directory. Then the slave is stopped
    (SIGSTOP) while as much is written again and synced, and continued. The data is in the page cache, so the master's disk is not
    read; the slave writes and syncs its copy on the same disk.
Excluded: the wait before the first byte, which is shown by itself in the seconds until the slave is in sync.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import instance
from bench.figures import Figure
from bench.measure import fill, settle
from bench.replicas.following import Chase, chase
from bench.replicas.group import MeasuredGroup, group_of
from bench.settings import LoadSettings

BYTES = 4 << 30
SIZE = 2048
MB_PER_S_MIN = 300.0


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    much = settings(int(BYTES * scale))
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        with instance.up_in(folder) as alone, alone.prepared(much) as target:
            say(f"catch_up: {much.fill:,} messages of {SIZE} B")
            settle(much, target)
            fill(much, target)
        say("catch_up: a slave with an empty directory")
        with instance.up_in(folder, "--replicas", "2") as both, group_of(both) as group:
            with chase(group, group.slave, end_of_master(group)) as copied:
                pass
            found += figures("from an empty directory", copied)
            found += figures("after a stop", _after_a_stop(both, group, much, say))
    return found


def _after_a_stop(
    both: instance.BenchInstance, group: MeasuredGroup, much: LoadSettings, say: Callable[[str], None]
) -> Chase:
    with both.prepared(much) as target:  # before the stop: a stopped broker applies no configuration
        settle(much, target)
        with group.without_slave() as go_on:
            say(f"catch_up: {much.fill:,} messages more while the slave is stopped")
            fill(much, target)
            slave, goal = group.slave, end_of_master(group)
            os.sync()  # else the slave waits for the disk while that writes what the master has just stored
            go_on()
            with chase(group, slave, goal) as copied:
                pass
    return copied


def settings(size: int) -> LoadSettings:
    """Messages that make up so many bytes."""
    return LoadSettings(mode="pull", size=SIZE, topic_pattern="much-%d", fill=max(1000, size // SIZE))


def end_of_master(group: MeasuredGroup) -> int:
    return group.log_end(group.master) or 0


def figures(name: str, copied: Chase) -> Iterator[Figure]:
    yield Figure(f"{name}: copied", copied.behind_bytes / 1e6, "MB")
    yield Figure(f"{name}: rate", copied.mb_per_s, "MB/s", least=MB_PER_S_MIN)
    yield Figure(f"{name}: CPU of the master", copied.cpu_s_per_gb("master"), "s/GB")
    yield Figure(f"{name}: CPU of the slave", copied.cpu_s_per_gb("slave"), "s/GB")
    yield Figure(f"{name}: until it has everything", copied.caught_up_s, "s")
    yield Figure(f"{name}: until it is in sync", copied.in_sync_s, "s")

"""Latency of sends while a reader drains 5 GiB of old data and retention deletes segments.

Settings: 2 GiB to be deleted, twice, then 5 GiB in 16 topics of their own (times --scale), messages of 2 KiB; all are
dropped from the page cache. Then single-message calls of 128 B, MEMORY, 16 topics × 8 queues, an open loop of 2,000/s
and one of 10,000/s, six times --seconds each. During both, a process with 4 pull connections drains the 5 GiB,
repeatedly by new groups, and the topics of one of the 2 GiB get a retention of a second. Latency counts from the
planned time. Excluded: the first two seconds.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from bench import instance
from bench.figures import Figure
from bench.generator import LoadTarget, run_load
from bench.measure import fill, on_one_core, settle
from bench.outcome import Latency
from bench.settings import LoadSettings

RATES = (2_000, 10_000)
SIZE = 2048
DELETED_BYTES, DRAINED_BYTES = 2 << 30, 5 << 30
WINDOWS = 6.0
WARMUP_S = 2.0
RETENTION_MS = 1_000
REST_S = 15.0
"""Pause between filling and measuring. A virtual machine stalls while it writes back: a mere sleep was 190 ms late."""


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    live = LoadSettings(seconds=seconds * WINDOWS, warmup_s=WARMUP_S)
    old = _filled("cold", DRAINED_BYTES, scale)
    doomed = {rate: _filled(f"gone{rate}", DELETED_BYTES, scale) for rate in RATES}
    found: list[Figure] = []
    with instance.own() as own, own.prepared(live) as target, own.prepared(old) as reader:
        for settings in (*doomed.values(), old):
            say(f"cold: {settings.fill:,} messages of {SIZE} B to {settings.topic_pattern}")
            with own.prepared(settings) as filler:
                settle(settings, filler)
                fill(settings, filler)
        settle(live, target)  # after the others: a segment is deleted only when all of its records may be
        forget(own.log_folder)
        time.sleep(REST_S)
        for rate, settings in doomed.items():
            say(f"cold: {rate:,} messages/s")
            before = own.segments
            with draining(replace(old, group=f"cold-{rate}"), reader) as drained, on_one_core():
                own.keep(settings.topic_names(), RETENTION_MS)
                latency = Latency.of(run_load(replace(live, rate=rate), target).latency)
                read_gib = drained.value * SIZE / (1 << 30)
            found += [
                Figure(f"{rate:,}/s: under 1 ms", latency.share_under_1_ms * 100, "%", least=99.9),
                Figure(f"{rate:,}/s: longest", latency.max_ms, "ms", most=100),
                Figure(f"{rate:,}/s: p99.9", latency.percentiles_ms["p99_9"], "ms"),
                Figure(f"{rate:,}/s: old data read meanwhile", read_gib, "GiB"),
                Figure(f"{rate:,}/s: segments deleted meanwhile", len(before - own.segments), ""),
            ]
    return found


def _filled(name: str, size: int, scale: float) -> LoadSettings:
    messages = max(1000, int(size * scale) // SIZE)
    return LoadSettings(mode="pull", size=SIZE, topic_pattern=f"{name}-%d", group="cold-0", fill=messages, consumers=4)


def forget(folder: Path) -> None:
    """Sync all segments and drop them from the page cache."""
    for path in folder.glob("*.seg"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


@contextmanager
def draining(settings: LoadSettings, target: LoadTarget) -> "Iterator[Synchronized[int]]":
    """Run a process that drains the topics during the block; yield its number of messages, updated per second."""
    context = multiprocessing.get_context("spawn")
    drained = context.Value("q", 0)
    process = context.Process(target=drain, args=(settings, target, drained), daemon=True)
    process.start()
    try:
        yield drained
    finally:
        process.kill()
        process.join()


def drain(settings: LoadSettings, target: LoadTarget, drained: "Synchronized[int]") -> None:
    """Drain the topics repeatedly, each time by a new group, until this process is ended."""
    for number in count():
        step = replace(settings, group=f"{settings.group}-{number}", seconds=1.0, warmup_s=0.0)
        while got := run_load(step, target).counts["deliveries"]:
            with drained.get_lock():
                drained.value += got
